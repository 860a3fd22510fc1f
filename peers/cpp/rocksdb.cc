// RocksDB, a log-structured merge tree.
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/optimistic_transaction_db.h>
#include <rocksdb/utilities/transaction.h>

#include "harness.hpp"

using race::view;

class Rocks {
public:
    static constexpr bool persistent = true;
    static constexpr bool threads = true;

    void open(const race::Config& config) {
        rocksdb::Options options;
        options.create_if_missing = true;
        options.IncreaseParallelism(int(std::thread::hardware_concurrency()));
        // Values do not compress.
        options.compression = rocksdb::kNoCompression;
        options.write_buffer_size = std::min<size_t>(size_t(256) << 20, config.cache_bytes / 8);
        options.max_write_buffer_number = 4;
        // Writes are not held back when compaction does not keep up.
        options.level0_slowdown_writes_trigger = 1 << 20;
        options.level0_stop_writes_trigger = 1 << 20;
        options.soft_pending_compaction_bytes_limit = 0;
        options.hard_pending_compaction_bytes_limit = 0;
        rocksdb::BlockBasedTableOptions table;
        table.block_cache = rocksdb::NewLRUCache(config.cache_bytes);
        table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
        table.data_block_index_type = rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
        options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
        if (config.has_transactions) {
            require(rocksdb::OptimisticTransactionDB::Open(options, config.dir, &transactions_), "Open");
            db_ = transactions_;
        } else {
            require(rocksdb::DB::Open(options, config.dir, &db_), "Open");
        }
    }
    void put(view key, view value) { require(db_->Put(rocksdb::WriteOptions(), slice(key), slice(value)), "Put"); }
    template <class F>
    bool get(view key, F&& found) {
        return get_into(value_, key, found);
    }
    template <class F>
    bool get_shared(view key, F&& found) {
        rocksdb::PinnableSlice value;
        return get_into(value, key, found);
    }
    template <class F>
    void get_many(const std::vector<view>& keys, F&& found) {
        slices_.clear();
        for (view key : keys) slices_.push_back(slice(key));
        values_.resize(keys.size());
        statuses_.resize(keys.size());
        db_->MultiGet(rocksdb::ReadOptions(), db_->DefaultColumnFamily(), keys.size(), slices_.data(), values_.data(),
                      statuses_.data());
        for (size_t i = 0; i < keys.size(); i++) {
            if (!statuses_[i].IsNotFound()) {
                require(statuses_[i], "MultiGet");
                found(i, view(values_[i].data(), values_[i].size()));
            }
            values_[i].Reset();
        }
    }
    // It does not tell whether the key was there.
    bool erase(view key) {
        require(db_->Delete(rocksdb::WriteOptions(), slice(key)), "Delete");
        return true;
    }
    template <class F>
    void scan(F&& each) {
        rocksdb::ReadOptions options;
        options.fill_cache = false;
        std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(options));
        for (at->SeekToFirst(); at->Valid(); at->Next()) {
            each(view(at->key().data(), at->key().size()), view(at->value().data(), at->value().size()));
        }
        require(at->status(), "Iterator");
    }
    void put_durable(view key, view value) {
        rocksdb::WriteOptions options;
        options.sync = true;
        require(db_->Put(options, slice(key), slice(value)), "Put");
    }
    template <class F>
    void transact(std::span<const race::Block::Item> items, F&& found) {
        // "Reuse the transaction object", says the wiki.
        transaction_.reset(transactions_->BeginTransaction(rocksdb::WriteOptions(), {}, transaction_.release()));
        for (auto& item : items) {
            value_.Reset();
            auto* family = db_->DefaultColumnFamily();
            auto status = transaction_->GetForUpdate(rocksdb::ReadOptions(), family, slice(item.key), &value_);
            if (!status.IsNotFound()) {
                require(status, "GetForUpdate");
                found(item, view(value_.data(), value_.size()));
            }
            require(transaction_->Put(slice(item.key), slice(item.value)), "Transaction::Put");
        }
        require(transaction_->Commit(), "Commit");
    }
    void sync() { require(db_->SyncWAL(), "SyncWAL"); }
    void close() {
        sync();
        value_.Reset();
        transaction_.reset();
        require(db_->Close(), "Close");
        delete db_;
    }

private:
    static rocksdb::Slice slice(view bytes) { return {bytes.data(), bytes.size()}; }
    static void require(const rocksdb::Status& status, const char* what) {
        if (!status.ok()) [[unlikely]] race::fail(std::string("rocksdb: ") + what + ": " + status.ToString());
    }
    template <class F>
    bool get_into(rocksdb::PinnableSlice& value, view key, F&& found) {
        value.Reset();
        auto status = db_->Get(rocksdb::ReadOptions(), db_->DefaultColumnFamily(), slice(key), &value);
        if (status.IsNotFound()) return false;
        require(status, "Get");
        found(view(value.data(), value.size()));
        return true;
    }

    rocksdb::DB* db_ = nullptr;
    // The same, if there are transactions.
    rocksdb::OptimisticTransactionDB* transactions_ = nullptr;
    std::unique_ptr<rocksdb::Transaction> transaction_;
    rocksdb::PinnableSlice value_;
    std::vector<rocksdb::Slice> slices_;
    std::vector<rocksdb::PinnableSlice> values_;
    std::vector<rocksdb::Status> statuses_;
};

RACE_ENGINE(rocksdb, Rocks);
