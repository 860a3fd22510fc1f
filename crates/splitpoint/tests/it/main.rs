//! The public interface: one module per feature.
//!
//! `SPLITPOINT_SLOW=1` runs more rounds and larger sizes; `SPLITPOINT_SEED=n` runs other cases.

#[cfg(test)]
mod address_space;
#[cfg(test)]
mod backup;
#[cfg(test)]
mod bank;
#[cfg(test)]
mod batch;
#[cfg(test)]
mod beside;
#[cfg(test)]
mod check;
#[cfg(test)]
mod checkpoint;
#[cfg(test)]
mod churn;
#[cfg(test)]
mod closes;
#[cfg(test)]
mod compaction;
#[cfg(test)]
mod concurrency;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod durability;
#[cfg(test)]
mod fork;
#[cfg(test)]
mod forms;
#[cfg(test)]
mod full_copy;
#[cfg(test)]
mod full_disk;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod handles;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod hostile_keys;
#[cfg(test)]
mod isolation;
#[cfg(test)]
mod kill;
mod large_transactions;
#[cfg(test)]
mod locks;
#[cfg(test)]
mod lost_device;
#[cfg(test)]
mod model;
#[cfg(test)]
mod moments;
#[cfg(test)]
mod mounts;
#[cfg(test)]
mod opens;
#[cfg(test)]
mod own_locks;
#[cfg(test)]
mod power_loss;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod rehash;
#[cfg(test)]
mod repair;
#[cfg(test)]
mod reserve;
#[cfg(test)]
mod series;
#[cfg(test)]
mod shared;
#[cfg(test)]
mod small_disk;
#[cfg(test)]
mod stopped_disk;
#[cfg(test)]
mod store;
#[cfg(test)]
mod support;
#[cfg(test)]
mod turns;
#[cfg(test)]
mod writer;
