//! `listen` of an export: the sockets at which virtual machines have it as a disk.

use tidegate_config::{PlacedValue, Section, TextOrTable};
use tidegate_gateway::{DiskSocket, SocketFile};

use super::listen::{self, DiskAddress};
use super::{PathUse, ReadContext, endpoints};

pub(super) const KEYS: &[&str] = tidegate_config::keys::serve::DISK.names;

pub(super) fn read(section: &Section<'_>, context: &mut ReadContext<'_>) -> Vec<DiskSocket> {
    let items = section.texts_and_tables("listen", KEYS, &mut context.report);
    items.into_iter().flatten().filter_map(|item| one(&item, context)).collect()
}

fn one(item: &TextOrTable<'_>, context: &mut ReadContext<'_>) -> Option<DiskSocket> {
    let (given, file) = match item {
        TextOrTable::Text(given) => (given.clone(), SocketFile::default()),
        TextOrTable::Table(section) => {
            if !section.has("address") {
                section.missing("address", "\"vhost-user:/run/tidegate/disk.sock\"", &mut context.report);
            }
            let given = section.text("address", &mut context.report);
            let file = endpoints::file(section, None, &mut context.report);
            (given?, file)
        }
    };
    let path = match given.value.parse() {
        Ok(DiskAddress(path)) => context.folder.join(path),
        Err(error) => {
            context.report.error(&given.span, format!("`listen`: {error}"));
            return None;
        }
    };
    if let Err(problem) = listen::socket_path_fits(&path) {
        context.report.error(&given.span, problem);
    }
    let is_same = |used: &PathUse| matches!(used, PathUse::Socket(other) if other.value == path);
    if context.touched.iter().any(is_same) {
        context.report.error(&given.span, format!("`{}` is listened on already", path.display()));
    }
    context.disks.push((path.clone(), context.report.place(&given.span)));
    context.touched.push(PathUse::Socket(PlacedValue { value: path.clone(), span: given.span }));
    Some(DiskSocket { path, file })
}
