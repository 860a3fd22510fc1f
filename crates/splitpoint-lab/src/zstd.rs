//! Input that may be compressed with zstd.
//!
//! Traces and key files are 40 times smaller compressed, and are read as they are decompressed: memory
//! holds one window of the format, at most 100 MiB, however long the text is.
//!
//! # Source
//!
//! RFC 8878, Zstandard Compression: frames, skippable frames, checksums.

use std::io::{self, BufRead, BufReader, Read};

use ruzstd::decoding::BlockDecodingStrategy;
use ruzstd::decoding::FrameDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};

/// The first bytes of a frame.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Bytes of text that wait to be read.
const BUFFER_BYTES: usize = 1 << 17;

/// Returns `input` as it is, or its content if it is compressed.
///
/// # Errors
///
/// Those of `input`. Damaged or truncated frames are errors of the reader that is returned.
///
/// # Examples
///
/// ```
/// use std::io::BufRead;
///
/// // `printf 'usr\nbin\n' | zstd | xxd -i`
/// let compressed: &[u8] = &[
///     0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x41, 0x00, 0x00, 0x75, 0x73, 0x72, 0x0a, 0x62, 0x69,
///     0x6e, 0x0a, 0xac, 0x3e, 0x8e, 0x67,
/// ];
/// for input in [compressed, b"usr\nbin\n"] {
///     let lines: Vec<String> = splitpoint_lab::zstd::reader(input)?.lines().collect::<Result<_, _>>()?;
///     assert_eq!(lines, ["usr", "bin"]);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn reader<'a>(mut input: impl BufRead + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    if input.fill_buf()?.starts_with(&MAGIC) {
        let frames = Frames { input, decoder: FrameDecoder::new(), is_in_frame: false };
        Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, frames)))
    } else {
        Ok(Box::new(input))
    }
}

/// The content of frames that follow each other.
struct Frames<R> {
    input: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: BufRead> Frames<R> {
    /// Begins the next frame, and returns whether there is one.
    fn begin_frame(&mut self) -> io::Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.input) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let skipped =
                        io::copy(&mut self.input.by_ref().take(length.into()), &mut io::sink())?;
                    if skipped < length.into() {
                        return Err(damaged("a skippable frame is cut off"));
                    }
                }
                Err(error) => return Err(undecodable(&error)),
            }
        }
        Ok(false)
    }

    fn check_end(&mut self) -> io::Result<()> {
        self.is_in_frame = false;
        let stated = self.decoder.get_checksum_from_data();
        if stated.is_some() && stated != self.decoder.get_calculated_checksum() {
            return Err(damaged("the checksum of a frame is wrong"));
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_in_frame && !self.begin_frame()? {
                return Ok(0);
            }
            self.is_in_frame = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder
                    .decode_blocks(&mut self.input, one)
                    .map_err(|error| undecodable(&error))?;
            }
            let count = self.decoder.read(out)?;
            if count > 0 {
                return Ok(count);
            }
            self.check_end()?;
        }
    }
}

fn damaged(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the zstd data is damaged: {error}"))
}

/// Returns the error for a frame that cannot be decoded. The decoder names its own types where the input
/// ends early.
fn undecodable(error: &FrameDecoderError) -> io::Error {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = source {
        let kind = inner.downcast_ref::<io::Error>().map(io::Error::kind);
        if kind == Some(io::ErrorKind::UnexpectedEof) {
            return damaged("it ends within a frame, as if the file was cut off");
        }
        source = inner.source();
    }
    damaged(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'usr\nbin\n' | zstd`: a header, one raw block, a checksum.
    const FRAME: [u8; 21] = [
        0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x41, 0x00, 0x00, 0x75, 0x73, 0x72, 0x0a, 0x62, 0x69,
        0x6e, 0x0a, 0xac, 0x3e, 0x8e, 0x67,
    ];

    fn text(input: &[u8]) -> io::Result<String> {
        let mut text = String::new();
        reader(input)?.read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn frames_that_follow_each_other_are_one_text_and_skippable_ones_are_skipped() {
        let skippable: &[u8] = &[0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 0xff, 0xff];
        let all = [&FRAME[..], skippable, &FRAME[..]].concat();
        assert_eq!(text(&all).unwrap(), "usr\nbin\nusr\nbin\n");
    }

    #[test]
    fn a_frame_cut_off_anywhere_is_an_error_and_so_is_a_wrong_checksum() {
        for end in MAGIC.len()..FRAME.len() {
            let error = text(&FRAME[..end]).unwrap_err().to_string();
            let words =
                "the zstd data is damaged: it ends within a frame, as if the file was cut off";
            assert_eq!(error, words, "{end} bytes");
        }
        let mut wrong = FRAME;
        wrong[20] ^= 1;
        let error = text(&wrong).unwrap_err();
        assert_eq!(error.to_string(), "the zstd data is damaged: the checksum of a frame is wrong");
    }
}
