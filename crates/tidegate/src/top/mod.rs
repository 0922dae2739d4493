//! `tidegate top`: running services on one screen.
//!
//! `services` asks them, `state` keeps what they said and takes keys, `row` says what a line of a table
//! shows, `draw`, `detail` and `table` put it on the screen. Only `services` touches the world.

mod detail;
mod draw;
mod history;
mod law;
mod row;
mod services;
mod state;
mod table;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;

use ratatui::Frame;
use ratatui::crossterm::event::KeyEvent;

use self::services::{ServiceNews, WatchedService};
use self::state::TopState;
use crate::failure::CommandFailure;
use crate::http::{CallerOptions, url_of_environment};
use crate::terminal::{self, Palette, TerminalView, ViewStep};

const EXAMPLES: &str = "\
Examples:
  tidegate top
  tidegate top -c /etc/tidegate/tidegate.toml
  tidegate top --url https://storage-1:9810 --url https://storage-2:9810 --token-file reader.token";

/// Watch running services: resources, their consumers, and the law's decisions, live
///
/// Shows the gateway and the agent of this machine, or services elsewhere. Each service is asked once a
/// second. If it does not answer, the screen says so, its figures are unknown, and it is asked again.
///
/// Keys: arrows or j and k move, Enter opens, Esc goes back, / filters, < and > or F6 choose the column to
/// sort by, ? explains all, q quits. Colours only repeat what words say, and NO_COLOR switches them off.
///
/// Exit status: 0 it was quit; 1 the terminal failed; 2 wrong usage, or no terminal.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The configuration of a service, which says where it answers; may be given several times
    #[arg(short, long, value_name = "FILE")]
    config: Vec<PathBuf>,

    /// Address of a service: http://HOST:PORT, https://HOST:PORT or unix:PATH; may be given several times
    /// [default: TIDEGATE_URL, or the sockets under /run, or http://127.0.0.1:9809]
    #[arg(long, value_name = "URL")]
    url: Vec<String>,

    #[command(flatten)]
    caller: CallerOptions,
}

impl Args {
    /// Returns the services to watch. Those of this machine are not missed where they do not run.
    fn services(&self) -> Result<Vec<WatchedService>, CommandFailure> {
        let named = self.config.iter().map(|path| self.caller.client_of(path));
        let environment = url_of_environment().filter(|_| self.config.is_empty() && self.url.is_empty());
        let urls = self.url.iter().chain(&environment).map(|url| self.caller.client(url));
        let named = named.chain(urls).collect::<Result<Vec<_>, _>>()?;
        let is_named = !named.is_empty();
        let clients = if is_named { named } else { self.caller.watchers_of_machine()? };
        let is_expected = is_named || clients.len() == 1;
        Ok(clients.into_iter().map(|client| WatchedService { client, is_expected }).collect())
    }
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    let services = args.services()?;
    if !terminal::is_interactive() {
        return Err(CommandFailure::Usage(
            "top needs a terminal; `tidegate status --watch` prints to files and pipes".to_owned(),
        ));
    }
    let stop = terminal::end_signals(true).map_err(CommandFailure::Signals)?;
    let known = services.iter().map(|service| (service.client.address(), service.is_expected));
    let state = TopState::new(known.collect(), Palette::of_environment());
    let news = services::watch(services)?;
    terminal::show(&mut TopView { state, news, started: Instant::now(), is_stopped: &stop })?;
    Ok(())
}

struct TopView<'a> {
    state: TopState,
    news: Receiver<ServiceNews>,
    started: Instant,
    is_stopped: &'a AtomicBool,
}

impl TerminalView for TopView<'_> {
    type End = ();

    fn advance(&mut self) -> ViewStep<()> {
        if self.is_stopped.load(Ordering::Relaxed) {
            return ViewStep::Ended(());
        }
        let mut step = ViewStep::Same;
        loop {
            match self.news.try_recv() {
                Ok(news) => {
                    self.state.apply(news, self.started.elapsed());
                    step = ViewStep::Changed;
                }
                Err(TryRecvError::Empty) => break,
                // Threads end with the view only.
                Err(TryRecvError::Disconnected) => return ViewStep::Ended(()),
            }
        }
        if self.state.pass(self.started.elapsed()) { ViewStep::Changed } else { step }
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        draw::render(frame, &mut self.state);
    }

    fn key(&mut self, key: KeyEvent) -> Option<()> {
        self.state.key(key)
    }
}
