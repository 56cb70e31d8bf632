//! Operations that run in the background: started with buffers that they own, finished by [`Request::wait`].

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::background::{Background, Job, Priority};
use super::buffer::{Buffer, bytes, bytes_mut};
use super::{Call, Communicator};
use crate::engine::Buffers;
use crate::error::{Error, Result};
use crate::plan::{Collective, Counts};
use crate::reduce::{Element, ReduceOp};

/// The buffers of an operation, given back when it is complete.
#[derive(Debug)]
pub struct Completed<T: Element> {
    /// What was sent.
    pub input: Buffer<T>,
    /// The result; `None` for an operation in place, whose result is in `input`.
    pub output: Option<Buffer<T>>,
}

enum State<T: Element> {
    Running,
    Finished(Result<Completed<T>>),
    Taken,
}

struct Slot<T: Element> {
    state: Mutex<State<T>>,
    finished: Condvar,
}

impl<T: Element> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // A state is replaced whole, so one left by a panic is as good as any.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An operation under way. Dropping it does not stop the operation: the buffers live until it is complete.
#[must_use = "an operation is complete only once it was waited for"]
pub struct Request<T: Element> {
    slot: Arc<Slot<T>>,
}

impl<T: Element> fmt::Debug for Request<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({})", if self.test() { "finished" } else { "running" })
    }
}

impl<T: Element> Request<T> {
    /// Whether it is complete (well or not), so that [`Request::wait`] will not wait.
    pub fn test(&self) -> bool {
        !matches!(*self.slot.lock(), State::Running)
    }

    /// Waits until it is complete and gives the buffers back.
    ///
    /// # Errors
    /// What ended the operation; the buffers are gone then.
    pub fn wait(self) -> Result<Completed<T>> {
        let mut state = self.slot.lock();
        while matches!(*state, State::Running) {
            state = self.slot.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        take(&mut state)
    }

    /// Waits at most `timeout`; the request itself when it is not complete by then.
    ///
    /// # Errors
    /// As for [`Request::wait`].
    pub fn wait_timeout(self, timeout: Duration) -> Result<std::result::Result<Completed<T>, Self>> {
        let deadline = Instant::now() + timeout;
        let mut state = self.slot.lock();
        while matches!(*state, State::Running) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(state);
                return Ok(Err(self));
            }
            (state, _) = self.slot.finished.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        take(&mut state).map(Ok)
    }
}

fn take<T: Element>(state: &mut State<T>) -> Result<Completed<T>> {
    match std::mem::replace(state, State::Taken) {
        State::Finished(result) => result,
        // `wait` consumes the request, so nobody can have taken the result before.
        State::Running | State::Taken => Err(Error::Broken("the result of a request was taken twice".into())),
    }
}

impl Communicator {
    /// Starts `call` in the background. All ranks start the same operations in the same order for each priority; the first
    /// start on a communicator is collective and sets up its threads.
    ///
    /// # Errors
    /// Bad arguments; ranks that fail while the threads are set up.
    pub fn start<T: Element>(
        &mut self,
        call: &Call,
        input: Buffer<T>,
        mut output: Buffer<T>,
        priority: Priority,
    ) -> Result<Request<T>> {
        let prepared = self.prepared(call, false)?;
        self.check_length(call, "input", std::mem::size_of_val::<[T]>(&input), prepared.input_bytes)?;
        self.check_length(call, "output", std::mem::size_of_val::<[T]>(&output), prepared.output_bytes)?;
        let buffers = Buffers { input: bytes(&input).as_ptr(), output: bytes_mut(&mut output).as_mut_ptr() };
        self.submit(prepared, buffers, Completed { input, output: Some(output) }, priority)
    }

    /// Starts `call` in place in the background; see [`Communicator::run_in_place`] and [`Communicator::start`].
    ///
    /// # Errors
    /// As for [`Communicator::start`].
    pub fn start_in_place<T: Element>(
        &mut self,
        call: &Call,
        mut buffer: Buffer<T>,
        priority: Priority,
    ) -> Result<Request<T>> {
        let prepared = self.prepared(call, true)?;
        let need = prepared.input_bytes.max(prepared.output_bytes);
        self.check_length(call, "the buffer", std::mem::size_of_val::<[T]>(&buffer), need)?;
        let buffers = self.in_place_buffers(call, bytes_mut(&mut buffer).as_mut_ptr());
        self.submit(prepared, buffers, Completed { input: buffer, output: None }, priority)
    }

    /// Starts an all_reduce in place at the priority of `HCOMM_STREAM_PRIORITY`.
    ///
    /// # Errors
    /// As for [`Communicator::start`].
    pub fn start_all_reduce<T: Element>(&mut self, buffer: Buffer<T>, op: ReduceOp) -> Result<Request<T>> {
        let counts = Counts::Even(buffer.len() as u64);
        let call = Call { collective: Collective::AllReduce, counts, dtype: T::TYPE, op, root: 0 };
        self.start_in_place(&call, buffer, Priority::from(self.world.config.stream_priority))
    }

    fn submit<T: Element>(
        &mut self,
        prepared: Arc<super::call::Prepared>,
        buffers: Buffers,
        completed: Completed<T>,
        priority: Priority,
    ) -> Result<Request<T>> {
        self.check_whole()?;
        if self.background.is_none() {
            self.background = Some(Background::start(self)?);
        }
        let slot = Arc::new(Slot { state: Mutex::new(State::Running), finished: Condvar::new() });
        let theirs = Arc::clone(&slot);
        let finish = move |result: Result<()>| {
            *theirs.lock() = State::Finished(result.map(|()| completed));
            theirs.finished.notify_all();
        };
        if let Some(background) = &mut self.background {
            background.submit(Job { prepared, buffers, finish: Box::new(finish) }, priority);
        }
        Ok(Request { slot })
    }
}
