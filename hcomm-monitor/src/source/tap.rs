//! What else is done with each tick, beside showing it.

use hcomm_cli::Result;

use super::{Source, Tick};

/// Takes in what a source sees: a recording, a trace, a server of metrics.
pub trait Tap {
    /// Takes in a tick.
    ///
    /// # Errors
    /// Its file cannot be written.
    fn take(&mut self, tick: &Tick) -> Result<()>;

    /// Nothing more comes.
    ///
    /// # Errors
    /// Its file cannot be written.
    fn end(&mut self) -> Result<()> {
        Ok(())
    }

    /// What is to be said when all has been shown.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A source with taps.
pub struct Tapped {
    source: Box<dyn Source>,
    taps: Vec<Box<dyn Tap>>,
}

impl Tapped {
    /// All that `source` sees goes through `taps` first.
    pub fn new(source: Box<dyn Source>, taps: Vec<Box<dyn Tap>>) -> Self {
        Self { source, taps }
    }

    /// Ends all taps, also when one of them cannot end well.
    ///
    /// # Errors
    /// The first of theirs.
    pub fn end(&mut self) -> Result<()> {
        self.taps.iter_mut().map(|tap| tap.end()).fold(Ok(()), Result::and)
    }
}

impl Source for Tapped {
    fn poll(&mut self) -> Result<Option<Tick>> {
        let tick = self.source.poll()?;
        if let Some(tick) = &tick {
            self.taps.iter_mut().try_for_each(|tap| tap.take(tick))?;
        }
        Ok(tick)
    }

    fn places(&self) -> Vec<String> {
        self.source.places()
    }

    fn is_live(&self) -> bool {
        self.source.is_live()
    }

    fn notes(&self) -> Vec<String> {
        let taps = self.taps.iter().flat_map(|tap| tap.notes());
        self.source.notes().into_iter().chain(taps).collect()
    }
}
