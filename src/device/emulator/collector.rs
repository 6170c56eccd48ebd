// Tangled from book/src/kernel-builds.md: edit there, or here and run cargo tangle stitch.
//! A backend for tests that computes nothing, and records the programs that it is asked to load.

use crate::device::backend::{Backend, Handle, Operation, Pages, TransformBatch};
use crate::device::dispatch::lock;
use crate::device::gpu::{Gpu, KernelSource, Shape};
use crate::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A source with its compiler options.
pub(crate) type Request = (KernelSource, Vec<String>);

/// The programs that `work` loads on a device, each once.
///
/// # Errors
/// Those of `work`.
pub(crate) fn requests(
    work: impl FnOnce(&Gpu) -> Result<(), Error>,
) -> Result<Vec<Request>, Error> {
    let collector = Collector::default();
    let noted = Arc::clone(&collector.noted);
    work(&Gpu::new(collector)?)?;
    Ok(lock(&noted).clone())
}

// Backend that computes nothing
#[derive(Default)]
struct Collector {
    noted: Arc<Mutex<Vec<Request>>>,
    handles: AtomicU64,
}

impl Collector {
    fn new_handle(&self) -> Result<u64, Error> {
        Ok(self.handles.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl Backend for Collector {
    fn load(&self, source: &KernelSource, options: &[String]) -> Result<u64, Error> {
        let request = (*source, options.to_vec());
        let mut noted = lock(&self.noted);
        if !noted.contains(&request) {
            noted.push(request);
        }
        self.new_handle()
    }

    // Answers without any work
    fn name(&self) -> &str {
        "device that does nothing"
    }

    fn available_memory(&self) -> Result<u64, Error> {
        Ok(1 << 40)
    }

    fn shared_memory(&self) -> usize {
        227 << 10
    }

    // Handles without any memory
    fn allocate(&self, _bytes: usize) -> Result<u64, Error> {
        self.new_handle()
    }

    fn pin(&self, _bytes: usize) -> Result<Box<dyn Pages>, Error> {
        let reason = "it has no memory".into();
        Err(Error::Device { device: self.name().into(), reason })
    }

    fn forget(&self, _thing: Handle) {}

    // Answers to copies and launches
    fn write(&self, _stream: u64, _address: u64, _bytes: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    fn read(&self, _stream: u64, _address: u64, bytes: &mut [u8]) -> Result<(), Error> {
        bytes.fill(0);
        Ok(())
    }

    fn kernel(&self, _program: u64, _name: &str) -> Result<u64, Error> {
        self.new_handle()
    }

    fn launch(&self, _: u64, _: u64, _: Shape, _arguments: &mut [u64]) -> Result<(), Error> {
        Ok(())
    }

    fn plan(&self, _stream: u64, _transforms: &TransformBatch) -> Result<u64, Error> {
        self.new_handle()
    }

    fn enqueue(&self, _stream: u64, _operation: &Operation) -> Result<(), Error> {
        Ok(())
    }

    // Answers about streams and recordings
    fn open_stream(&self) -> Result<u64, Error> {
        self.new_handle()
    }

    fn synchronise(&self, _stream: u64) -> Result<(), Error> {
        Ok(())
    }

    fn mark(&self, _stream: u64) -> Result<u64, Error> {
        self.new_handle()
    }

    fn reach(&self, _mark: u64) -> Result<(), Error> {
        Ok(())
    }

    fn milliseconds(&self, _marks: [u64; 2]) -> Result<f64, Error> {
        Ok(1.0)
    }

    // Answers about recordings
    fn begin_recording(&self, _stream: u64) -> Result<(), Error> {
        Ok(())
    }

    fn end_recording(&self, _stream: u64) -> Result<u64, Error> {
        self.new_handle()
    }

    fn replay(&self, _stream: u64, _graph: u64) -> Result<(), Error> {
        Ok(())
    }
}
