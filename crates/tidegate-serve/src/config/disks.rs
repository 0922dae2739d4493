//! `listen` of an export: the sockets at which virtual machines have it as a disk, and the block devices of
//! this host that it is.

use std::ops::Range;
use std::path::PathBuf;

use tidegate_config::{PlacedValue, Section, TextOrTable};
use tidegate_gateway::{DeviceNumber, DiskSocket, SocketFile};

use super::listen::{self, DiskAddress};
use super::{PathUse, ReadContext, StartSubject, endpoints};

pub(super) const KEYS: &[&str] = tidegate_config::keys::pool::DISK.names;

/// Keys that only sockets have.
const SOCKET_KEYS: [&str; 3] = ["mode", "owner", "group"];

/// The disks of an export.
#[derive(Debug, Default)]
pub(super) struct ReadDisks {
    pub(super) sockets: Vec<DiskSocket>,
    pub(super) devices: Vec<DeviceNumber>,
}

pub(super) fn read(section: &Section<'_>, context: &mut ReadContext<'_>) -> ReadDisks {
    let items = section.texts_and_tables("listen", KEYS, &mut context.report);
    let mut disks = ReadDisks::default();
    for item in items.into_iter().flatten() {
        let (given, table) = match &item {
            TextOrTable::Text(given) => (Some(given.clone()), None),
            TextOrTable::Table(section) => {
                if !section.has("address") {
                    let example = "\"vhost-user:/run/tidegate/disk.sock\"";
                    section.missing("address", example, &mut context.report);
                }
                (section.text("address", &mut context.report), Some(section))
            }
        };
        match given.as_ref().map(|given| (given, given.value.parse())) {
            Some((given, Ok(DiskAddress::Device(number)))) => {
                device(number, given.span.clone(), table, &mut disks, context);
            }
            Some((given, Ok(DiskAddress::Socket(path)))) => {
                let file = file(table, context);
                disks.sockets.push(socket(context.folder.join(path), given.span.clone(), file, context));
            }
            Some((given, Err(error))) => {
                file(table, context);
                context.report.error(&given.span, format!("`listen`: {error}"));
            }
            None => drop(file(table, context)),
        }
    }
    disks
}

/// The rights to a socket's file, as a table says them.
fn file(table: Option<&Section<'_>>, context: &mut ReadContext<'_>) -> SocketFile {
    table.map_or_else(SocketFile::default, |table| endpoints::file(table, None, &mut context.report))
}

fn socket(path: PathBuf, span: Range<usize>, file: SocketFile, context: &mut ReadContext<'_>) -> DiskSocket {
    if let Err(problem) = listen::socket_path_fits(&path) {
        context.report.error(&span, problem);
    }
    let is_same = |used: &PathUse| matches!(used, PathUse::Socket(other) if other.value == path);
    if context.touched.iter().any(is_same) {
        context.report.error(&span, format!("`{}` is listened on already", path.display()));
    }
    let socket = DiskSocket { path: path.clone(), file };
    context.places.push((StartSubject::Disk(socket.to_string()), context.report.place(&span)));
    context.touched.push(PathUse::Socket(PlacedValue { value: path, span }));
    socket
}

fn device(
    number: DeviceNumber,
    span: Range<usize>,
    table: Option<&Section<'_>>,
    disks: &mut ReadDisks,
    context: &mut ReadContext<'_>,
) {
    for key in SOCKET_KEYS {
        if let Some(span) = table.and_then(|table| table.key_span(key)) {
            let what =
                format!("`{key}` is for sockets: who may open {} is said by udev", number.block_path());
            context.report.error(&span, what);
        }
    }
    let subject = StartSubject::Disk(number.to_string());
    if context.places.iter().any(|(other, _)| *other == subject) {
        context.report.error(&span, format!("`{number}` is a disk already"));
    }
    context.places.push((subject, context.report.place(&span)));
    disks.devices.push(number);
}
