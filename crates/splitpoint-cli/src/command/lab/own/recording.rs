//! Notes the keys while they are read: which place each has, and what commands say to them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use splitpoint_lab::keys::{KeyBatch, KeyInput, KeySource, Noticed, ReadError};
use splitpoint_lab::specimen::KeyIndex;

use super::command::{Answers, Form, Run};
use super::hash_file::HashFormat;
use crate::failure::Result;

/// Notes the keys of a source in the order in which they are read for the first time.
#[derive(Clone)]
pub(in crate::command::lab) struct Recorder(Arc<Mutex<State>>);

struct State {
    form: Form,
    is_begun: bool,
    index: KeyIndex,
    runs: Vec<Run>,
    of_files: Vec<Vec<u64>>,
}

/// What was recorded.
pub(super) struct RecordedKeys {
    pub(super) form: Form,
    pub(super) index: Arc<KeyIndex>,
    /// The hashes of each file, in the order of the keys.
    pub(super) of_files: Vec<Vec<u64>>,
    /// What each command gave, in the order of the keys.
    pub(super) of_commands: Vec<Answers>,
}

impl Recorder {
    /// Starts the commands, whose hashes come in `format`. `of_files` are hashes that are known
    /// already.
    pub(super) fn start(
        commands: &[String],
        form: Form,
        format: Option<HashFormat>,
        of_files: Vec<Vec<u64>>,
    ) -> Result<Self> {
        let run = |command: &String| Run::start(command, form, format);
        let runs = commands.iter().map(run).collect::<Result<_>>()?;
        let state = State { form, is_begun: false, index: KeyIndex::default(), runs, of_files };
        Ok(Self(Arc::new(Mutex::new(state))))
    }

    /// Returns the same source, whose keys are noted.
    pub(in crate::command::lab) fn recording(
        &self,
        source: Box<dyn KeySource>,
    ) -> Box<dyn KeySource> {
        Box::new(Recording { source, recorder: self.clone() })
    }

    /// Ends the commands and returns what was recorded.
    pub(super) fn finish(self, format: Option<HashFormat>) -> Result<RecordedKeys> {
        let mut state = self.lock();
        let runs = std::mem::take(&mut state.runs);
        let of_commands = runs.into_iter().map(|run| run.finish(format)).collect::<Result<_>>()?;
        let index = Arc::new(std::mem::take(&mut state.index));
        let of_files = std::mem::take(&mut state.of_files);
        Ok(RecordedKeys { form: state.form, index, of_files, of_commands })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A source whose keys are noted.
struct Recording {
    source: Box<dyn KeySource>,
    recorder: Recorder,
}

impl KeySource for Recording {
    fn open(&self) -> Result<Box<dyn KeyInput + Send + '_>, ReadError> {
        let input = self.source.open()?;
        let is_first = !std::mem::replace(&mut self.recorder.lock().is_begun, true);
        let recorder = &self.recorder;
        Ok(if is_first { Box::new(RecordingInput { input, recorder }) } else { input })
    }

    fn spill(&self) -> Result<Option<Box<dyn std::io::Write + '_>>, ReadError> {
        self.source.spill()
    }

    fn is_distinct(&self) -> bool {
        self.source.is_distinct()
    }
}

struct RecordingInput<'a> {
    input: Box<dyn KeyInput + Send + 'a>,
    recorder: &'a Recorder,
}

impl KeyInput for RecordingInput<'_> {
    fn read_batch(&mut self, batch: &mut KeyBatch) -> Result<bool, ReadError> {
        let known = batch.len();
        let has_more = self.input.read_batch(batch)?;
        let mut state = self.recorder.lock();
        for at in known..batch.len() {
            let key = batch.key(at);
            state.index.add(key);
            state.runs.iter_mut().for_each(|run| run.write(key));
        }
        Ok(has_more)
    }

    fn noticed(&self) -> Noticed {
        self.input.noticed()
    }

    fn offset(&self) -> u64 {
        self.input.offset()
    }
}
