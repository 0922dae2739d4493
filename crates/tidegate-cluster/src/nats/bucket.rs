//! Policies in a JetStream key-value bucket.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::kv::{CreateErrorKind, Entry, Operation, Store, UpdateErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy};
use futures_util::StreamExt as _;
use thiserror::Error;
use tidegate_nats::NatsServers;
use tidegate_units::ResourceName;

use super::connection::{ConnectionPurpose, connect};
use super::subject;
use crate::config::NatsConfig;
use crate::name::ClusterName;
use crate::policy::{InvalidPolicy, LONGEST, MOST_RESOURCES, ResourcePolicy};
use crate::policy_board::{PolicyBoard, PolicyRefusal, PolicyRevision};
use crate::signature::{PolicyKey, sign, verify};

/// So many earlier revisions of each policy are kept in the bucket.
const HISTORY: i64 = 16;

/// So much of a key is shown that is none of ours.
const LONGEST_SHOWN: usize = 64;

/// For a request to the server.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reasons why a policy cannot be read or changed.
#[derive(Debug, Error)]
pub enum PolicyError {
    /// The server cannot be reached, or does not let us in.
    #[error("cannot connect to {servers}: {why}")]
    Connect {
        /// The servers that were tried.
        servers: String,
        /// The reason.
        why: String,
    },
    /// The server has no place for policies.
    #[error("cannot use the bucket `{bucket}` (is JetStream enabled on the server?): {why}")]
    Bucket {
        /// Its name.
        bucket: String,
        /// The reason.
        why: String,
    },
    /// Another writer has changed the policy.
    #[error(
        "the policy of `{resource}` is at revision {found}, not at {expected}: another writer has changed \
            it; look \
            at it again"
    )]
    Conflict {
        /// The resource of the policy.
        resource: ResourceName,
        /// The revision that was expected; 0: none at all.
        expected: u64,
        /// The revision that is there; 0: none at all.
        found: u64,
    },
    /// The stored document is not a policy.
    #[error("what stands there for `{resource}` (revision {revision}) is no policy that hosts follow: {why}")]
    Stored {
        /// For which resource.
        resource: ResourceName,
        /// Its revision: what to expect when replacing it.
        revision: u64,
        /// The fault in the document.
        why: InvalidPolicy,
    },
    /// The document to be written is not a policy.
    #[error("this is not a policy: {0}")]
    Invalid(#[from] InvalidPolicy),
    /// The server did not do it.
    #[error("the server did not do it: {0}")]
    Refused(String),
    /// The system gives no runtime to wait with.
    #[error("cannot start")]
    System(#[from] std::io::Error),
}

/// The bucket of a cluster's policies, which is made when it is not there.
///
/// It is made as a stream, because `create_key_value` expects fields of the account that servers before 2.10
/// do not send.
pub(crate) async fn open(client: &Client, cluster: &ClusterName, replicas: u8) -> Result<Store, PolicyError> {
    let bucket = subject::bucket(cluster);
    let failed =
        |why: &dyn std::fmt::Display| PolicyError::Bucket { bucket: bucket.clone(), why: why.to_string() };
    let mut context = async_nats::jetstream::new(client.clone());
    context.set_timeout(PATIENCE);
    let stream = Config {
        name: format!("KV_{bucket}"),
        subjects: vec![format!("$KV.{bucket}.>")],
        max_messages_per_subject: HISTORY,
        max_message_size: LONGEST as i32,
        max_bytes: (LONGEST * MOST_RESOURCES) as i64,
        num_replicas: replicas.into(),
        discard: DiscardPolicy::New,
        allow_rollup: true,
        deny_delete: true,
        allow_direct: true,
        ..Config::default()
    };
    let made = context.get_or_create_stream(stream).await;
    // Another host may have made it at the same moment, of which the server says one thing or another.
    context.get_key_value(&bucket).await.map_err(|error| match made {
        Ok(_) => failed(&error),
        Err(error) => failed(&error),
    })
}

/// Brings every signed change of a policy to the board, beginning with what is there, until something fails.
///
/// All revisions are read that the bucket keeps, and the highest serial number wins: what is written over a
/// policy without a signature does not hide it from a host that starts.
pub(crate) async fn follow(
    store: &Store,
    config: &NatsConfig,
    cluster: &ClusterName,
    board: &PolicyBoard,
    warn: impl Fn(BucketFault),
) -> String {
    let mut entries = match store.watch_all_from_revision(1).await {
        Ok(entries) => entries,
        Err(error) => return error.to_string(),
    };
    // Everything that the bucket keeps, up to the entry that was its last one when the watch began.
    let (mut kept, mut to_come) = (BTreeMap::<ResourceName, PolicyRevision>::new(), None);
    while let Some(entry) = entries.next().await {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return error.to_string(),
        };
        let left = to_come.map_or(entry.delta, |left: u64| left.saturating_sub(1));
        to_come = Some(left);
        let read = read(&entry, config, cluster);
        if left > 0 {
            match read {
                Ok(Some((resource, policy))) => {
                    if kept.get(&resource).is_none_or(|known| known.serial < policy.serial) {
                        kept.insert(resource, policy);
                    }
                }
                // A deletion of then has no effect.
                Ok(None) => {}
                Err(complaint) => warn(complaint),
            }
            continue;
        }
        for (resource, policy) in std::mem::take(&mut kept) {
            // A policy that was in force before this connection may be later.
            let _ = adopt(board, cluster, resource, policy);
        }
        let done = match read {
            Ok(Some((resource, policy))) => adopt(board, cluster, resource, policy),
            Ok(None) => Err(BucketFault::Deleted { key: entry.key, revision: entry.revision }),
            Err(complaint) => Err(complaint),
        };
        if let Err(complaint) = done {
            warn(complaint);
        }
    }
    "the server ended the watch".to_owned()
}

/// The policy of an entry. `None`: it is a deletion.
fn read(
    entry: &Entry,
    config: &NatsConfig,
    cluster: &ClusterName,
) -> Result<Option<(ResourceName, PolicyRevision)>, BucketFault> {
    let Entry { key, revision, .. } = entry;
    let revision = *revision;
    let resource = subject::resource_of(key)
        .ok_or_else(|| BucketFault::Key { key: key.chars().take(LONGEST_SHOWN).collect() })?;
    if entry.operation != Operation::Put {
        return Ok(None);
    }
    match verify(&entry.value, &config.writers, cluster, &resource) {
        Ok(verified) => Ok(Some((resource, PolicyRevision::new(revision, verified)))),
        Err(why) => Err(BucketFault::Refused { resource, revision, why }),
    }
}

fn adopt(
    board: &PolicyBoard,
    cluster: &ClusterName,
    resource: ResourceName,
    policy: PolicyRevision,
) -> Result<(), BucketFault> {
    let PolicyRevision { revision, serial, .. } = policy;
    match board.put(resource.clone(), policy) {
        Ok(true) => {
            tracing::info!(
                "cluster {cluster}: the policy of `{resource}` is at revision {revision}, serial number \
                    {serial}"
            );
            Ok(())
        }
        Ok(false) => Ok(()),
        Err(PolicyRefusal::Old(why)) => Err(BucketFault::Refused { resource, revision, why }),
        Err(PolicyRefusal::TooMany) => Err(BucketFault::TooMany { resource }),
    }
}

/// A fault of an entry of the bucket. Every client may write there: each kind is said once a minute.
#[derive(Debug, Error)]
pub(crate) enum BucketFault {
    #[error("the key `{key}` among the policies is not a resource's")]
    Key { key: String },
    #[error(
        "`{key}` was deleted from the policies (revision {revision}): what was in force stays, since a \
            deletion is not \
         signed; `tidegate policy set --replace` ends a policy"
    )]
    Deleted { key: String, revision: u64 },
    #[error("revision {revision} of the policy of `{resource}` is refused, the last good one stays: {why}")]
    Refused { resource: ResourceName, revision: u64, why: InvalidPolicy },
    #[error("no policy of `{resource}`: there are {MOST_RESOURCES} already")]
    TooMany { resource: ResourceName },
}

/// The policy of a resource; `None` when it has none. Waits for the server, some seconds at most.
///
/// # Errors
/// When the server cannot be reached, has no JetStream, or what stands there is not a policy that one of the
/// configured writers has signed.
pub fn policy_get(
    nats: &NatsConfig,
    cluster: &ClusterName,
    resource: &ResourceName,
) -> Result<Option<PolicyRevision>, PolicyError> {
    with_store(nats, cluster, async |store| {
        let Some((revision, value)) = entry(&store, resource).await? else { return Ok(None) };
        match verify(&value, &nats.writers, cluster, resource) {
            Ok(verified) => Ok(Some(PolicyRevision::new(revision, verified))),
            Err(why) => Err(PolicyError::Stored { resource: resource.clone(), revision, why }),
        }
    })
}

/// Signs the policy of a resource and sets it, if it is still at the expected revision; 0 means that there
/// must be none. Returns the new revision. The serial number must be above that of every policy of this
/// resource before, or hosts refuse it. Waits for the server, some seconds at most.
///
/// # Errors
pub fn policy_put(
    nats: &NatsConfig,
    cluster: &ClusterName,
    resource: &ResourceName,
    (policy, serial, key): (&ResourcePolicy, u64, &PolicyKey),
    expected_revision: u64,
) -> Result<u64, PolicyError> {
    let json = sign(key, cluster, resource, serial, policy)?;
    with_store(nats, cluster, async |store| {
        let key = subject::token(resource.as_str());
        let (lost, why) = if expected_revision == 0 {
            match store.create(&key, json.into()).await {
                Ok(revision) => return Ok(revision),
                Err(error) => (error.kind() == CreateErrorKind::AlreadyExists, error.to_string()),
            }
        } else {
            match store.update(&key, json.into(), expected_revision).await {
                Ok(revision) => return Ok(revision),
                Err(error) => (error.kind() == UpdateErrorKind::WrongLastRevision, error.to_string()),
            }
        };
        if !lost {
            return Err(PolicyError::Refused(why));
        }
        let found = entry(&store, resource).await?.map_or(0, |(revision, _)| revision);
        Err(PolicyError::Conflict { resource: resource.clone(), expected: expected_revision, found })
    })
}

async fn entry(store: &Store, resource: &ResourceName) -> Result<Option<(u64, Vec<u8>)>, PolicyError> {
    let key = subject::token(resource.as_str());
    let entry = store.entry(key).await.map_err(|error| PolicyError::Refused(error.to_string()))?;
    Ok(entry
        .filter(|entry| entry.operation == Operation::Put)
        .map(|entry| (entry.revision, entry.value.to_vec())))
}

fn with_store<T>(
    nats: &NatsConfig,
    cluster: &ClusterName,
    work: impl AsyncFnOnce(Store) -> Result<T, PolicyError>,
) -> Result<T, PolicyError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, _) = connect(nats, &NatsServers::new(&nats.servers), ConnectionPurpose::Once)
            .await
            .map_err(|why| PolicyError::Connect { servers: nats.servers.join(", "), why })?;
        work(open(&client, cluster, nats.replicas).await?).await
    })
}
