//! The process with the library, from inside: it answers requests until its input ends.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use signal_hook::low_level;
use splitpoint_lab::keys::KeyBatch;
use splitpoint_lab::timing::{Clock, Sample, Turn};
use splitpoint_machine::HashLibrary;

use super::process::{HASH, READY, SAMPLE, TURN, TURN_BYTES};
use crate::failure::{Failure, Result};
use crate::interrupt;

/// A request.
struct Request {
    kind: u8,
    seed: u64,
    keys: KeyBatch,
}

/// Makes the turns of a function that does nothing and of the function.
type Turns = Box<dyn Fn() -> [Turn; 2]>;

/// Answers requests for a function of a library.
pub(in crate::command::lab) fn worker(file: &Path, symbol: &str) -> Result<()> {
    interrupt::leave_to_parent();
    let failed = |error: io::Error| Failure::io("answer", &error);
    let output = io::stdout().as_fd().try_clone_to_owned().map_err(failed)?;
    // What the library prints must not get between the answers.
    rustix::stdio::dup2_stdout(io::stderr()).map_err(|error| failed(error.into()))?;
    let mut output = BufWriter::new(File::from(output));
    let requests = requests();
    let library = match HashLibrary::open(file, symbol) {
        Ok(library) => library,
        Err(why) => {
            return output
                .write_all(b"-")
                .and_then(|()| output.write_all(why.as_bytes()))
                .map_err(failed);
        }
    };
    output.write_all(&[READY]).and_then(|()| output.flush()).map_err(failed)?;
    let mut turns = None;
    for request in requests {
        answer(library, &request, &mut turns, &mut output)
            .and_then(|()| output.flush())
            .map_err(failed)?;
    }
    Ok(())
}

/// Reads requests in a thread. At the end of the input the parent is gone, and nobody waits for
/// what the function may still be doing: the process ends.
fn requests() -> Receiver<Request> {
    let (sender, requests) = mpsc::channel();
    thread::spawn(move || {
        let mut input = BufReader::new(io::stdin().lock());
        while let Ok(request) = request(&mut input) {
            if sender.send(request).is_err() {
                return;
            }
        }
        low_level::exit(0);
    });
    requests
}

/// Reads a request.
fn request(input: &mut impl Read) -> io::Result<Request> {
    let [kind] = number(input)?;
    let seed = u64::from_le_bytes(number(input)?);
    let key_count = u32::from_le_bytes(number(input)?);
    let (mut keys, mut key) = (KeyBatch::default(), Vec::new());
    for _ in 0..key_count {
        let length = u32::from_le_bytes(number(input)?);
        key.clear();
        input.take(length.into()).read_to_end(&mut key)?;
        keys.push(&key);
    }
    Ok(Request { kind, seed, keys })
}

/// Reads the bytes of a number.
fn number<const N: usize>(input: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn answer(
    library: HashLibrary,
    request: &Request,
    turns: &mut Option<Turns>,
    output: &mut impl Write,
) -> io::Result<()> {
    let Request { kind, seed, keys } = request;
    match (*kind, turns) {
        (HASH, _) => keys
            .iter()
            .try_for_each(|key| output.write_all(&library.hash(key, *seed).to_le_bytes())),
        (SAMPLE, turns) => {
            *turns = Some(turns_of(library, *seed, Sample::of(keys.iter())));
            output.write_all(&[READY])
        }
        (TURN, Some(turns)) => {
            let numbers = turns().map(|turn| [turn.throughput_ns, turn.latency_ns]);
            let mut bytes = [0; TURN_BYTES];
            for (place, number) in bytes.as_chunks_mut().0.iter_mut().zip(numbers.as_flattened()) {
                *place = number.to_bits().to_le_bytes();
            }
            output.write_all(&bytes)
        }
        _ => Err(io::Error::other("there is no such request")),
    }
}

/// Prepares the clocks. The function is called by its address, as one that does nothing is.
fn turns_of(library: HashLibrary, seed: u64, sample: Sample) -> Turns {
    let function = move |key: &[u8], seed: u64| library.hash(key, seed);
    let (idle, clock) = (Clock::idle(&sample), Clock::new(function, seed, &sample));
    Box::new(move || [idle.turn(&sample), clock.turn(&sample)])
}
