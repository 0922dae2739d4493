//! Cgroups by the names that people use: pods, containers, virtual machines, units of systemd.
//!
//! Paths of cgroups have identifiers. Files tell the names that belong to them, so that no daemon is asked:
//!
//! | name | path | file |
//! |---|---|---|
//! | `pod:NAMESPACE/NAME` | `…-podUID.slice`, `podUID` | the kubelet's `/var/log/pods/NAMESPACE_NAME_UID` |
//! | `container:NAME` | `docker-ID.scope`, `docker/ID` | Docker's `…/containers/ID/config.v2.json`, below its data root |
//! | | `libpod-ID.scope` | Podman's `…/overlay-containers/containers.json` |
//! | | `nerdctl-ID.scope` | nerdctl's `/var/lib/nerdctl/HASH/names/NAMESPACE/NAME` |
//! | `libvirt:DOMAIN` | `machine-qemu\x2dN\x2dDOMAIN.scope` | none |
//! | `unit:NAME` | the unit's own | none |

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tidegate_units::visible;

use super::escaped::path_text;
use crate::root::SystemRoot;
use crate::wildcard::looks_like;

/// Directories of a hierarchy that are looked at, at most.
const MOST_DIRECTORIES: usize = 65_536;

/// Cgroups are nested no deeper by any of these.
const DEEPEST: usize = 12;

/// Names that are read of a kind of container, at most.
const MOST_NAMES: usize = 16_384;

/// The greatest file that is read.
const MOST_BYTES: u64 = 8 << 20;

/// The kinds of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NameKind {
    /// A pod of Kubernetes: `NAMESPACE/NAME`.
    Pod,
    /// A container of Docker, Podman or nerdctl.
    Container,
    /// A virtual machine of libvirt.
    Libvirt,
    /// A unit of systemd; a service if its name has no suffix.
    Unit,
}

impl NameKind {
    /// Every kind, with its prefix.
    pub(super) const ALL: [(Self, &'static str); 4] = [
        (Self::Pod, "pod"),
        (Self::Container, "container"),
        (Self::Libvirt, "libvirt"),
        (Self::Unit, "unit"),
    ];
}

impl fmt::Display for NameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = Self::ALL.iter().find(|(kind, _)| kind == self).map_or("", |(_, prefix)| prefix);
        f.write_str(prefix)
    }
}

/// A cgroup with a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedCgroup {
    /// The kind of its name.
    pub kind: NameKind,
    /// Its name.
    pub name: String,
    /// Its path below the root of the hierarchy.
    pub path: String,
}

impl fmt::Display for NamedCgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.name)
    }
}

impl NamedCgroup {
    /// Returns true if a pattern of names of its kind means it.
    pub(super) fn is_meant(&self, kind: NameKind, pattern: &str) -> bool {
        self.kind == kind && looks_like(pattern, &self.name)
    }
}

/// The cgroups of a hierarchy that have a name, or should have one.
#[derive(Debug, Default)]
pub(super) struct FoundNames {
    pub(super) named: Vec<NamedCgroup>,
    /// Paths of pods and containers whose names no file tells.
    pub(super) unnamed: Vec<String>,
}

/// Finds the named cgroups of a hierarchy whose root is at `tree`. A file that cannot be read gives no name.
pub(super) fn find(root: &SystemRoot, tree: &Path) -> FoundNames {
    let names = KnownNames::read(root);
    let mut found = FoundNames::default();
    let (mut open, mut seen) = (vec![(PathBuf::new(), 0)], 0);
    while let Some((path, depth)) = open.pop() {
        for name in directories(&tree.join(&path)) {
            seen += 1;
            let inner = path.join(&name);
            match names.of(&name) {
                Some((kind, known)) => {
                    let name = visible(&known).into_owned();
                    found.named.push(NamedCgroup { kind, name, path: path_text(&inner) });
                }
                None if lacks_name(&name, &path) => found.unnamed.push(path_text(&inner)),
                None => {}
            }
            if depth < DEEPEST && seen < MOST_DIRECTORIES {
                open.push((inner, depth + 1));
            }
        }
    }
    found.named.sort();
    found.unnamed.sort();
    found
}

/// Returns true for a directory of a pod or a container that should have a name. The containers of a pod have
/// none by themselves.
fn lacks_name(directory: &str, parent: &Path) -> bool {
    let is_in_pod = || parent.iter().any(|name| name.to_str().is_some_and(|name| pod_uid(name).is_some()));
    pod_uid(directory).is_some() || container_id(directory).is_some() && !is_in_pod()
}

fn directories(path: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let entries = entries.filter_map(Result::ok);
    let entries = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    entries.filter_map(|entry| entry.file_name().into_string().ok()).take(MOST_NAMES).collect()
}

/// Names by the identifiers in paths.
#[derive(Debug, Default)]
struct KnownNames {
    pods: BTreeMap<String, String>,
    containers: BTreeMap<String, String>,
}

impl KnownNames {
    fn read(root: &SystemRoot) -> Self {
        let mut containers = docker(root);
        containers.extend(podman(root));
        containers.extend(nerdctl(root));
        Self { pods: pods(root), containers }
    }

    /// Returns the name of a cgroup by that of its directory.
    fn of(&self, directory: &str) -> Option<(NameKind, String)> {
        if let Some(uid) = pod_uid(directory) {
            return Some((NameKind::Pod, self.pods.get(&uid)?.clone()));
        }
        if let Some(id) = container_id(directory) {
            return Some((NameKind::Container, self.containers.get(id)?.clone()));
        }
        if let Some(domain) = domain(directory) {
            return Some((NameKind::Libvirt, domain));
        }
        let is_unit = [".service", ".scope"].iter().any(|suffix| directory.ends_with(suffix));
        is_unit.then(|| (NameKind::Unit, directory.to_owned()))
    }
}

/// Returns the UID of a pod's cgroup. The driver systemd writes underscores for dashes, and a prefix.
fn pod_uid(directory: &str) -> Option<String> {
    let name = directory.strip_suffix(".slice").unwrap_or(directory);
    let (before, uid) = name.rsplit_once("pod")?;
    let is_prefix = before.is_empty() || before.ends_with('-');
    let uid = uid.replace('_', "-");
    let is_uid = uid.len() >= 32 && uid.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    (is_prefix && is_uid).then_some(uid)
}

/// Returns the ID of a container's cgroup: 64 hexadecimal digits, with a runtime's prefix or alone.
fn container_id(directory: &str) -> Option<&str> {
    let name = directory.strip_suffix(".scope").unwrap_or(directory);
    let id = name.rsplit_once('-').map_or(name, |(_, id)| id);
    // Podman's monitor of a container has its ID, too, and does no I/O of its own.
    let is_id = id.len() == 64 && id.chars().all(|c| c.is_ascii_hexdigit());
    (is_id && !name.contains("conmon")).then_some(id)
}

/// Returns the domain of a virtual machine's cgroup, as libvirt and systemd escape it.
fn domain(directory: &str) -> Option<String> {
    let machine = unescaped(directory.strip_prefix("machine-")?.strip_suffix(".scope")?);
    let (number, name) =
        ["qemu-", "lxc-"].iter().find_map(|kind| machine.strip_prefix(kind))?.split_once('-')?;
    let is_number = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit());
    (is_number && !name.is_empty()).then(|| name.to_owned())
}

/// Undoes `systemd-escape`: `\x2d` is a dash.
fn unescaped(text: &str) -> String {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        let code = (*first == b'\\' && tail.first() == Some(&b'x')).then(|| tail.get(1..3)).flatten();
        let code = code.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match code {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => out.push(*first),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Names of pods by their UID.
fn pods(root: &SystemRoot) -> BTreeMap<String, String> {
    let pod = |directory: String| {
        let (names, uid) = directory.rsplit_once('_')?;
        let (namespace, name) = names.split_once('_')?;
        Some((uid.to_owned(), format!("{namespace}/{name}")))
    };
    directories(&root.path("/var/log/pods")).into_iter().filter_map(pod).collect()
}

/// A container as Docker keeps it.
#[derive(Deserialize)]
struct DockerContainer {
    #[serde(rename = "Name")]
    name: String,
}

/// The part of Docker's configuration that tells where its data is.
#[derive(Deserialize)]
struct DockerConfiguration {
    #[serde(rename = "data-root")]
    data_root: Option<PathBuf>,
}

/// The folders where Docker's data may be: the usual ones, those of its configurations, and in each of them
/// those of its option `userns-remap`, named after the numbers of a user and a group.
fn docker_roots(root: &SystemRoot) -> Vec<PathBuf> {
    const USUAL: [&str; 2] = ["/var/lib/docker", "/var/snap/docker/common/var-lib-docker"];
    const CONFIGURATIONS: [&str; 2] =
        ["/etc/docker/daemon.json", "/var/snap/docker/current/config/daemon.json"];
    let configured = CONFIGURATIONS.into_iter().filter_map(|path| {
        let configuration: DockerConfiguration = serde_json::from_str(&bounded(&root.path(path))?).ok()?;
        configuration.data_root.filter(|folder| folder.is_absolute())
    });
    let mut roots: Vec<_> =
        USUAL.into_iter().map(PathBuf::from).chain(configured).map(|folder| root.path(folder)).collect();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_remapped = |folder: &String| {
        folder.split_once('.').is_some_and(|(user, group)| is_number(user) && is_number(group))
    };
    let remapped = roots.iter().flat_map(|folder| {
        directories(folder).into_iter().filter(is_remapped).map(move |inner| folder.join(inner))
    });
    let remapped: Vec<_> = remapped.collect();
    roots.extend(remapped);
    roots
}

fn docker(root: &SystemRoot) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for folder in docker_roots(root).into_iter().map(|folder| folder.join("containers")) {
        let container = |id: String| {
            let text = bounded(&folder.join(&id).join("config.v2.json"))?;
            let known: DockerContainer = serde_json::from_str(&text).ok()?;
            Some((id, known.name.trim_start_matches('/').to_owned()))
        };
        found.extend(directories(&folder).into_iter().filter_map(container));
    }
    found
}

/// A container as Podman's storage keeps it.
#[derive(Deserialize)]
struct PodmanContainer {
    id: String,
    #[serde(default)]
    names: Vec<String>,
}

fn podman(root: &SystemRoot) -> BTreeMap<String, String> {
    let path = root.path("/var/lib/containers/storage/overlay-containers/containers.json");
    let known: Vec<PodmanContainer> =
        bounded(&path).and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let first = |container: PodmanContainer| Some((container.id, container.names.into_iter().next()?));
    known.into_iter().take(MOST_NAMES).filter_map(first).collect()
}

/// Files of nerdctl, each with the name of a container, that hold its ID.
fn nerdctl(root: &SystemRoot) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let store = root.path("/var/lib/nerdctl");
    for hash in directories(&store) {
        let names = store.join(hash).join("names");
        for namespace in directories(&names) {
            let Ok(entries) = fs::read_dir(names.join(namespace)) else { continue };
            for entry in entries.filter_map(Result::ok).take(MOST_NAMES) {
                if let (Ok(name), Some(id)) = (entry.file_name().into_string(), bounded(&entry.path())) {
                    found.insert(id.trim().to_owned(), name);
                }
            }
        }
    }
    found
}

/// Reads a file, unless it is larger than any that is meant.
fn bounded(path: &Path) -> Option<String> {
    let file = fs::metadata(path).ok()?;
    if file.is_file() && file.len() <= MOST_BYTES { fs::read_to_string(path).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trees::unpack;

    fn found(tree: &str) -> Vec<(String, String)> {
        let folder = tempfile::tempdir().unwrap();
        unpack(tree, folder.path()).unwrap();
        let root = SystemRoot::at(folder.path());
        let cgroups = crate::cgroup::CgroupTree::find(&root).unwrap().named();
        cgroups.into_iter().map(|named| (named.to_string(), named.path)).collect()
    }

    fn is_found(found: &[(String, String)], name: &str, path: &str) {
        assert!(found.contains(&(name.to_owned(), path.to_owned())), "{name} {path}: {found:#?}");
    }

    #[test]
    fn pods_have_the_names_that_the_kubelet_gives_their_logs() {
        let found = found(include_str!("../../tests/fixtures/cgroups-kubernetes.tree"));
        is_found(
            &found,
            "pod:shop/db-0",
            "kubepods.slice/kubepods-burstable.slice/\
             kubepods-burstable-pod5f2d8c1e_0b3a_4c67_9a51_2f7f1c9e6a10.slice",
        );
        is_found(
            &found,
            "pod:kube-system/etcd-node1",
            "kubepods.slice/kubepods-pod0d7c5f2a4b3e4d1f9c8b7a6958473625.slice",
        );
        is_found(
            &found,
            "pod:batch/report-28937",
            "kubepods/besteffort/pod91f0c6f7-6f5e-4b0e-8f43-7f6b1d2c3e4f",
        );
    }

    #[test]
    fn containers_have_the_names_that_their_engines_keep() {
        let found = found(include_str!("../../tests/fixtures/cgroups-containers.tree"));
        let id = |digit: &str| digit.repeat(64);
        is_found(&found, "container:web", &format!("system.slice/docker-{}.scope", id("a")));
        is_found(&found, "container:old", &format!("docker/{}", id("b")));
        is_found(&found, "container:backup", &format!("machine.slice/libpod-{}.scope", id("c")));
        is_found(&found, "container:cache", &format!("system.slice/nerdctl-{}.scope", id("d")));
        let is_monitor =
            |(name, path): &(String, String)| name.starts_with("container:") && path.contains("conmon");
        assert!(!found.iter().any(is_monitor), "{found:#?}");
    }

    #[test]
    fn dockers_data_is_found_where_its_configuration_has_it() {
        let id = "a".repeat(64);
        let tree = include_str!("../../tests/fixtures/cgroups-containers.tree");
        assert!(tree.contains("var/lib/docker/containers/"));
        let elsewhere = |folder: &str, more: &str| {
            found(&(tree.replace("var/lib/docker/containers", &format!("{folder}/containers")) + more))
        };
        let path = format!("system.slice/docker-{id}.scope");
        let configured = "etc/docker/daemon.json\n  {\"log-driver\": \"local\", \"data-root\": \"/srv/d\"}\n";
        is_found(&elsewhere("srv/d", configured), "container:web", &path);
        is_found(&elsewhere("srv/d/1000.1000", configured), "container:web", &path);
        is_found(&elsewhere("var/snap/docker/common/var-lib-docker", ""), "container:web", &path);
        is_found(&elsewhere("var/lib/docker/231072.231072", ""), "container:web", &path);
        assert!(!elsewhere("srv/d", "").iter().any(|(name, _)| name == "container:web"));
    }

    #[test]
    fn containers_without_a_name_are_told_apart_from_those_of_pods() {
        let folder = tempfile::tempdir().unwrap();
        let tree = include_str!("../../tests/fixtures/cgroups-containers.tree");
        unpack(&tree.replace("var/lib/docker/containers", "srv/d/containers"), folder.path()).unwrap();
        let tree = crate::cgroup::CgroupTree::find(&SystemRoot::at(folder.path())).unwrap();
        let unnamed = tree.unnamed();
        assert!(unnamed.contains(&format!("system.slice/docker-{}.scope", "a".repeat(64))), "{unnamed:#?}");
        assert!(!unnamed.iter().any(|path| path.contains("libpod")), "{unnamed:#?}");
        let pod = Path::new("kubepods/pod91f0c6f7-6f5e-4b0e-8f43-7f6b1d2c3e4f");
        assert!(!lacks_name(&"a".repeat(64), pod) && lacks_name(&"a".repeat(64), Path::new("docker")));
    }

    #[test]
    fn domains_and_units_tell_their_names_themselves() {
        let found = found(include_str!("../../tests/fixtures/cgroups-libvirt.tree"));
        is_found(&found, "libvirt:db-main", r"machine.slice/machine-qemu\x2d3\x2ddb\x2dmain.scope");
        is_found(&found, "unit:backup.service", "system.slice/backup.service");
        is_found(&found, "unit:100.scope", "qemu.slice/100.scope");
    }

    #[test]
    fn patterns_select_by_name() {
        let folder = tempfile::tempdir().unwrap();
        unpack(include_str!("../../tests/fixtures/cgroups-kubernetes.tree"), folder.path()).unwrap();
        let tree = crate::cgroup::CgroupTree::find(&SystemRoot::at(folder.path())).unwrap();
        let selected = |patterns: &[&str]| {
            let patterns: Vec<_> = patterns.iter().map(|text| text.parse().unwrap()).collect();
            tree.expand(&patterns).unwrap().len()
        };
        assert_eq!(selected(&["pod:shop/db-0"]), 1);
        let names = |patterns: [&str; 2]| {
            let selected = tree.select(&patterns.map(|text| text.parse().unwrap())).unwrap();
            selected.into_values().collect::<Vec<_>>()
        };
        let etcd = "kubepods.slice/kubepods-pod0d7c5f2a4b3e4d1f9c8b7a6958473625.slice";
        assert_eq!(names(["pod:shop/db-*", etcd]), [Some("pod:shop/db-0".to_owned()), None]);
        assert_eq!(names([etcd, "pod:kube-system/etcd-*"]), [Some("pod:kube-system/etcd-node1".to_owned())]);
        assert_eq!(selected(&["pod:*/*"]), 3, "a pod without logs has no name");
        assert_eq!(selected(&["pod:shop/*", "unit:kubelet"]), 2);
        assert_eq!(selected(&["pod:shop/db-1"]), 0);
        for (wrong, says) in
            [("pod:db", "pod:NAMESPACE/NAME"), ("container:", "container:NAME"), ("libvirt:", "libvirt:NAME")]
        {
            let error = wrong.parse::<crate::cgroup::CgroupPattern>().unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn escapes_are_undone_and_what_is_none_stays() {
        assert_eq!(unescaped(r"a\x2db\x2"), r"a-b\x2");
        assert_eq!(unescaped(r"\xzz\x41"), r"\xzzA");
        assert_eq!(unescaped(""), "");
    }
}
