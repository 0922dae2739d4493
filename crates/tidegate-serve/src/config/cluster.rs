//! `[cluster]`: the other hosts that share pools' resources.

use tidegate_cluster::{ClusterFile, ClusterMember, ClusterPlan, ClusterReader, MemberWords, read_cluster};
use tidegate_config::{PlacedValue, Section};

use super::{PathUse, ReadContext};

/// The words for pools as members of a cluster.
const WORDS: MemberWords = MemberWords {
    member: "pool",
    none: "no pool takes part in the cluster",
    help: "add `cluster = true` to those whose storage other hosts share",
};

/// Reads `[cluster]`, which pools may be members of.
pub(super) fn read(
    root: &Section<'_>,
    members: &[ClusterMember],
    context: &mut ReadContext<'_>,
) -> Option<PlacedValue<ClusterPlan>> {
    let (report, folder) = (&mut context.report, context.folder);
    let mut reader = ClusterReader { report, folder, files: Vec::new(), words: WORDS, default_host: None };
    let plan = read_cluster(root, members, &mut reader);
    let files = reader.files;
    context.touched.extend(files.into_iter().map(path_use));
    plan
}

fn path_use(file: ClusterFile) -> PathUse {
    match file {
        ClusterFile::Key(file) => PathUse::Key(file),
        ClusterFile::Secret(file) => PathUse::Secret(file),
        ClusterFile::Credentials(file) => PathUse::Credentials(file),
        ClusterFile::Authorities(file) => PathUse::Authorities(file),
        ClusterFile::Certificate(file) => PathUse::Certificate(file),
        ClusterFile::PrivateKey(file) => PathUse::PrivateKey(file),
    }
}
