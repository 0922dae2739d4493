use super::*;
use crate::config::ExportStore;

fn claim(path: &Path, owner: &str, read_only: bool) -> io::Result<Arc<VolumeFile>> {
    let name = ConsumerName::new(owner).unwrap();
    let mut export = ExportConfig::new(name, ExportStore::Path(path.to_owned()));
    export.read_only = read_only;
    VolumeFile::open(path, false, &export)
}

/// A claim's error, which must be that something else uses the volume.
fn refusal(path: &Path, owner: &str, read_only: bool) -> String {
    let error = claim(path, owner, read_only).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
    error.to_string()
}

#[test]
fn a_file_has_one_writer_or_many_readers() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let writer = claim(file.path(), "a", false).unwrap();
    assert!(refusal(file.path(), "b", false).contains("export `a` of this gateway"));
    assert!(refusal(file.path(), "b", true).contains("export `a`"));
    drop(writer);
    let readers = [claim(file.path(), "a", true).unwrap(), claim(file.path(), "b", true).unwrap()];
    assert!(refusal(file.path(), "c", false).contains("export `a`"));
    drop(readers);
    claim(file.path(), "c", false).unwrap();
}

#[test]
fn a_later_export_of_the_same_name_has_a_part_in_the_claim() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let removed = claim(file.path(), "a", false).unwrap();
    let added = claim(file.path(), "a", false).unwrap();
    drop(removed);
    assert!(refusal(file.path(), "b", false).contains("export `a`"));
    drop(added);
    claim(file.path(), "b", false).unwrap();
}

#[test]
fn a_hard_link_is_the_same_volume() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    File::create(&one).unwrap();
    std::fs::hard_link(&one, &other).unwrap();
    let _claim = claim(&one, "a", false).unwrap();
    assert!(refusal(&other, "b", false).contains("export `a`"));
}

#[test]
fn a_lock_of_another_program_is_respected() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let other = file.reopen().unwrap();

    other.try_lock().unwrap();
    assert!(refusal(file.path(), "a", false).contains("locked by another program"));
    other.unlock().unwrap();

    lock::for_reading(&other).unwrap();
    assert!(refusal(file.path(), "a", false).contains("locked by another program"));
    claim(file.path(), "a", true).unwrap();
    drop(other);
    claim(file.path(), "a", false).unwrap();
}

#[test]
fn a_volume_that_becomes_free_within_the_patience_is_taken() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let other = file.reopen().unwrap();
    other.try_lock().unwrap();
    let path = file.path().to_owned();
    let taken = thread::spawn(move || claim(&path, "a", false).map(drop));
    // Time for some attempts in vain.
    thread::sleep(4 * RETRY);
    drop(other);
    taken.join().unwrap().unwrap();
}
