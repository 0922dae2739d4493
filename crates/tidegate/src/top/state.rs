//! The state of the screen: what services said, and where the person is. Pure: time and keys are arguments.

use std::time::{Duration, SystemTime};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tidegate_service::status::{ResourceStatus, ServiceStatus};

use super::history::{Histories, History};
use super::row::{Column, TopRow};
use super::services::{ServiceAnswered, ServiceNews};
use crate::terminal::{self, Palette};

/// An answer older than this says nothing of now.
const CURRENT: Duration = Duration::from_millis(3_500);

/// The most characters of a filter.
const LONGEST_FILTER: usize = 64;

/// A service on the screen.
#[derive(Debug)]
pub(super) struct ServiceView {
    pub(super) address: String,
    /// False: it is shown from its first answer on.
    is_expected: bool,
    pub(super) status: Option<ServiceStatus>,
    /// Time of the last answer, since the view began, and as a time of day.
    answered: Option<(Duration, SystemTime)>,
    /// The reason why the last question has no answer.
    pub(super) failure: Option<String>,
    pub(super) is_current: bool,
    histories: Histories,
}

impl ServiceView {
    /// Returns true if the service is shown.
    pub(super) const fn is_shown(&self) -> bool {
        self.is_expected || self.status.is_some()
    }

    /// Returns the time of day of the last answer.
    pub(super) fn answered_at(&self) -> Option<SystemTime> {
        self.answered.map(|(_, at)| at)
    }

    /// Returns the time since the last answer.
    pub(super) fn silent_for(&self, now: Duration) -> Option<Duration> {
        self.answered.map(|(answered, _)| now.saturating_sub(answered))
    }

    #[cfg(test)]
    pub(super) fn samples_kept(&self) -> usize {
        self.histories.samples_kept()
    }

    fn row<'a>(&'a self, status: &'a ServiceStatus, resource: &'a ResourceStatus) -> TopRow<'a> {
        TopRow { resource, consumer: None, sees: status.sees, is_current: self.is_current }
    }
}

/// A part of the screen that keys go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pane {
    Resources,
    Consumers,
    /// One consumer, with its history.
    Detail,
}

/// The column that a table is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SortOrder {
    pub(super) column: Column,
    pub(super) is_descending: bool,
}

impl SortOrder {
    const BY_NEED: Self = Self { column: Column::State, is_descending: true };

    fn step(&mut self, columns: &[Column], by: usize) {
        let at = columns.iter().position(|column| *column == self.column).unwrap_or(0);
        let column = columns[(at + by) % columns.len()];
        *self = Self { column, is_descending: column.is_descending() };
    }
}

/// The place of a table on the screen.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Scroll {
    /// The first row shown.
    pub(super) first: usize,
    /// The number of rows shown.
    pub(super) height: usize,
}

impl Scroll {
    /// Shows so many rows, and among them the selected one.
    pub(super) fn show(&mut self, selected: usize, rows: usize, height: usize) {
        self.height = height;
        self.first = self.first.min(rows.saturating_sub(height)).min(selected);
        if height > 0 && selected >= self.first + height {
            self.first = selected + 1 - height;
        }
    }
}

/// A resource by the numbers of its service and of itself there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResourceAt {
    pub(super) service: usize,
    index: usize,
}

/// The whole state.
#[derive(Debug)]
pub(super) struct TopState {
    pub(super) palette: Palette,
    pub(super) services: Vec<ServiceView>,
    pub(super) now: Duration,
    pub(super) pane: Pane,
    pub(super) is_help: bool,
    pub(super) filter: String,
    pub(super) is_filtering: bool,
    pub(super) resource_order: SortOrder,
    pub(super) consumer_order: SortOrder,
    pub(super) resource_scroll: Scroll,
    pub(super) consumer_scroll: Scroll,
    /// Resources that pass the filter, sorted.
    resources: Vec<ResourceAt>,
    /// Consumers of the selected resource that pass the filter, sorted.
    consumers: Vec<usize>,
    /// The selected resource by its service and its name. Sorting and news do not change it.
    resource: Option<(usize, String)>,
    consumer: Option<String>,
    /// True from the first resource on.
    has_begun: bool,
}

impl TopState {
    /// The state before any news. `services`: their addresses, and whether they are expected.
    pub(super) fn new(services: Vec<(String, bool)>, palette: Palette) -> Self {
        let view = |(address, is_expected)| ServiceView {
            address,
            is_expected,
            status: None,
            answered: None,
            failure: None,
            is_current: false,
            histories: Histories::default(),
        };
        Self {
            palette,
            services: services.into_iter().map(view).collect(),
            now: Duration::ZERO,
            pane: Pane::Resources,
            is_help: false,
            filter: String::new(),
            is_filtering: false,
            resource_order: SortOrder::BY_NEED,
            consumer_order: SortOrder::BY_NEED,
            resource_scroll: Scroll::default(),
            consumer_scroll: Scroll::default(),
            resources: Vec::new(),
            consumers: Vec::new(),
            resource: None,
            consumer: None,
            has_begun: false,
        }
    }

    /// Takes the outcome of a question.
    pub(super) fn apply(&mut self, news: ServiceNews, now: Duration) {
        self.now = now;
        let Some(view) = self.services.get_mut(news.service) else { return };
        match news.answer {
            Ok(ServiceAnswered { address, status }) => {
                let silent = view.silent_for(now).unwrap_or_default();
                let missed = if view.is_current { 0 } else { silent.as_secs().saturating_sub(1) as usize };
                view.histories.take(&status, missed);
                (view.address, view.status) = (address, Some(status));
                (view.answered, view.failure, view.is_current) = (Some((now, news.at)), None, true);
            }
            Err(failure) => {
                view.failure = Some(failure);
                view.is_current = false;
            }
        }
        self.arrange();
    }

    /// Lets time pass. Returns true if the screen changes by it.
    pub(super) fn pass(&mut self, now: Duration) -> bool {
        let is_next_second = now.as_secs() != self.now.as_secs();
        self.now = now;
        let mut has_aged = false;
        for view in &mut self.services {
            if view.is_current && view.silent_for(now).is_some_and(|silent| silent > CURRENT) {
                view.is_current = false;
                has_aged = true;
            }
        }
        if has_aged {
            self.arrange();
        }
        // The time of silence is on the screen.
        let is_silent = self.services.iter().any(|view| view.is_shown() && !view.is_current);
        has_aged || (is_next_second && is_silent)
    }

    /// Filters and sorts anew, and keeps what is selected.
    fn arrange(&mut self) {
        let matches = |name: &str| is_match(name, &self.filter);
        let mut resources: Vec<(ResourceAt, TopRow<'_>)> = Vec::new();
        for (service, view) in self.services.iter().enumerate() {
            let Some(status) = &view.status else { continue };
            for (index, resource) in status.resources.iter().enumerate() {
                if matches(&resource.name) || resource.consumers.iter().any(|one| matches(one.shown_name())) {
                    resources.push((ResourceAt { service, index }, view.row(status, resource)));
                }
            }
        }
        let SortOrder { column, is_descending } = self.resource_order;
        resources.sort_by(|(_, one), (_, two)| one.compare(two, column, is_descending));
        let found: Vec<_> = resources.into_iter().map(|(at, _)| at).collect();
        self.resources = found;
        if !self.has_begun && !self.resources.is_empty() {
            self.has_begun = true;
            // With one resource there is nothing to choose.
            if self.resources.len() == 1 {
                self.pane = Pane::Consumers;
            }
        }
        let at = self.selected_resource();
        self.select_resource(at);
    }

    fn select_resource(&mut self, at: usize) {
        let Some(place) = self.resources.get(at).copied() else {
            self.consumers.clear();
            return;
        };
        let name = self.status_at(place).name.clone();
        let is_other = self.resource.as_ref().is_none_or(|known| *known != (place.service, name.clone()));
        if is_other {
            self.resource = Some((place.service, name));
            (self.consumer, self.consumer_scroll.first) = (None, 0);
        }
        let row = self.row_at(place);
        let is_whole = is_match(row.name(), &self.filter);
        let consumers = row.resource.consumers.iter().enumerate();
        let mut rows: Vec<(usize, TopRow<'_>)> = consumers
            .filter(|(_, one)| is_whole || is_match(one.shown_name(), &self.filter))
            .map(|(index, one)| (index, TopRow { consumer: Some(one), ..row }))
            .collect();
        let SortOrder { column, is_descending } = self.consumer_order;
        rows.sort_by(|(_, one), (_, two)| one.compare(two, column, is_descending));
        self.consumers = rows.into_iter().map(|(index, _)| index).collect();
        // A consumer that is gone stays selected while it is looked at: it may come back.
        if self.consumer.is_none() {
            self.select_consumer(0);
        }
    }

    fn select_consumer(&mut self, at: usize) {
        let name = self.consumer_row(at).map(|row| row.name().to_owned());
        if name.is_some() {
            self.consumer = name;
        }
    }

    fn status_at(&self, at: ResourceAt) -> &ResourceStatus {
        self.row_at(at).resource
    }

    fn row_at(&self, at: ResourceAt) -> TopRow<'_> {
        let view = &self.services[at.service];
        // Invariant: places are made from the status that is there, and made anew when it changes.
        let status = view.status.as_ref().expect("a service with resources has answered");
        view.row(status, &status.resources[at.index])
    }

    pub(super) const fn resources_shown(&self) -> usize {
        self.resources.len()
    }

    pub(super) const fn consumers_shown(&self) -> usize {
        self.consumers.len()
    }

    /// Returns a row of the table of resources, and its service.
    pub(super) fn resource_row(&self, at: usize) -> Option<(TopRow<'_>, &ServiceView)> {
        let place = *self.resources.get(at)?;
        Some((self.row_at(place), &self.services[place.service]))
    }

    /// Returns a row of the table of consumers.
    pub(super) fn consumer_row(&self, at: usize) -> Option<TopRow<'_>> {
        let (row, _) = self.resource_row(self.selected_resource())?;
        let consumer = row.resource.consumers.get(*self.consumers.get(at)?)?;
        Some(TopRow { consumer: Some(consumer), ..row })
    }

    /// Returns the number of the selected resource in its table: the first one if it is gone.
    pub(super) fn selected_resource(&self) -> usize {
        let Some((service, name)) = &self.resource else { return 0 };
        let is_it = |at: &ResourceAt| at.service == *service && self.status_at(*at).name == *name;
        self.resources.iter().position(is_it).unwrap_or(0)
    }

    /// Returns the number of the selected consumer in its table: the first one if it is gone.
    pub(super) fn selected_consumer(&self) -> usize {
        let Some(name) = &self.consumer else { return 0 };
        let is_it = |at: &usize| self.consumer_row(*at).is_some_and(|row| row.name() == name);
        (0..self.consumers.len()).find(is_it).unwrap_or(0)
    }

    /// Returns the history of a row.
    pub(super) fn history(&self, service: &ServiceView, row: &TopRow<'_>) -> Option<&History> {
        // The same service: rows borrow from it.
        let view = self.services.iter().find(|view| std::ptr::eq(*view, service))?;
        view.histories.of(&row.resource.name, row.consumer.map(|one| one.name.as_str()))
    }

    /// Takes a key. `Some`: the view ends.
    pub(super) fn key(&mut self, key: KeyEvent) -> Option<()> {
        if terminal::interrupts(&key) {
            return Some(());
        }
        if self.is_filtering {
            self.edit_filter(key.code);
            return None;
        }
        if std::mem::take(&mut self.is_help) {
            return None;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('q') | KeyCode::F(10) => return Some(()),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.is_help = true,
            KeyCode::Char('/') | KeyCode::F(4) => {
                self.is_filtering = true;
                self.filter.clear();
                self.arrange();
            }
            KeyCode::Char('f') if is_control => self.page(true),
            KeyCode::Char('b') if is_control => self.page(false),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown => self.page(true),
            KeyCode::PageUp => self.page(false),
            KeyCode::Home | KeyCode::Char('g') => self.step(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.step(isize::MAX),
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => self.open(),
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => self.back(),
            KeyCode::Tab => {
                self.pane = if self.pane == Pane::Resources { Pane::Consumers } else { Pane::Resources };
            }
            KeyCode::Char('>' | '.') | KeyCode::F(6) => self.sort(|order, columns| order.step(columns, 1)),
            KeyCode::Char('<' | ',') => self.sort(|order, columns| order.step(columns, columns.len() - 1)),
            KeyCode::Char('r' | 'I') => {
                self.sort(|order, _| order.is_descending = !order.is_descending);
            }
            _ => {}
        }
        None
    }

    fn edit_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter | KeyCode::Down | KeyCode::Up => self.is_filtering = false,
            KeyCode::Esc => {
                self.is_filtering = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(typed) if self.filter.chars().count() < LONGEST_FILTER => self.filter.push(typed),
            _ => return,
        }
        self.arrange();
    }

    /// Moves the selection of the pane in use by so many rows.
    fn step(&mut self, by: isize) {
        let moved = |at: usize, rows: usize| at.saturating_add_signed(by).min(rows.saturating_sub(1));
        if self.pane == Pane::Resources {
            self.select_resource(moved(self.selected_resource(), self.resources.len()));
        } else {
            self.select_consumer(moved(self.selected_consumer(), self.consumers.len()));
        }
    }

    fn page(&mut self, is_down: bool) {
        let scroll = if self.pane == Pane::Resources { self.resource_scroll } else { self.consumer_scroll };
        let rows = isize::try_from(scroll.height.max(1)).unwrap_or(isize::MAX);
        self.step(if is_down { rows } else { -rows });
    }

    fn open(&mut self) {
        self.pane = match self.pane {
            Pane::Resources => Pane::Consumers,
            Pane::Consumers | Pane::Detail if self.consumers.is_empty() => Pane::Consumers,
            Pane::Consumers | Pane::Detail => Pane::Detail,
        };
    }

    fn back(&mut self) {
        match self.pane {
            Pane::Detail => self.pane = Pane::Consumers,
            _ if !self.filter.is_empty() => {
                self.filter.clear();
                self.arrange();
            }
            Pane::Consumers | Pane::Resources => self.pane = Pane::Resources,
        }
    }

    fn sort(&mut self, change: impl FnOnce(&mut SortOrder, &[Column])) {
        match self.pane {
            Pane::Resources => change(&mut self.resource_order, Column::OF_RESOURCES),
            Pane::Consumers | Pane::Detail => change(&mut self.consumer_order, Column::OF_CONSUMERS),
        }
        self.arrange();
    }
}

/// Returns true if a name passes a filter: it has the text in it, in capital or small letters.
fn is_match(name: &str, filter: &str) -> bool {
    filter.is_empty() || name.to_lowercase().contains(&filter.to_lowercase())
}
