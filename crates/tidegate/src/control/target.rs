//! The resource or the consumer that an operator names.

use tidegate_service::status::{ConsumerStatus, ResourceStatus, ServiceStatus};

/// A resource, or a consumer of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ControlTarget {
    pub(super) resource: String,
    /// `None`: the resource as a whole.
    pub(super) consumer: Option<String>,
}

impl ControlTarget {
    /// Finds the name among what a service has. A resource goes before a consumer of the same name, unless
    /// `resource` names the resource of the consumer.
    ///
    /// # Errors
    /// In words: the name is unknown, or several resources have a consumer of it.
    pub(super) fn find(status: &ServiceStatus, name: &str, resource: Option<&str>) -> Result<Self, String> {
        let resources = &status.resources;
        if let Some(resource) = resource {
            let names: Vec<_> = resources.iter().map(|known| known.name.as_str()).collect();
            let Some(known) = resources.iter().find(|known| known.name == resource) else {
                return Err(format!("there is no resource `{resource}`; {}", hint(resource, &names)));
            };
            // The status leaves out consumers of a resource that has very many. The service checks the name.
            return if has(known, name) || known.consumers_left_out > 0 {
                Ok(Self { resource: resource.to_owned(), consumer: Some(own_name(known, name)) })
            } else {
                let names: Vec<_> = consumers(known).collect();
                Err(format!("{resource} has no consumer `{name}`; {}", hint(name, &names)))
            };
        }
        if resources.iter().any(|known| known.name == name) {
            return Ok(Self { resource: name.to_owned(), consumer: None });
        }
        let mut having = resources.iter().filter(|known| has(known, name));
        match (having.next(), having.next()) {
            (Some(one), None) => Ok(Self { resource: one.name.clone(), consumer: Some(own_name(one, name)) }),
            (Some(one), Some(other)) => Err(format!(
                "`{name}` is a consumer of {}, of {} and perhaps of others: name one with `--resource`",
                one.name, other.name
            )),
            (None, _) => {
                let names: Vec<_> = resources
                    .iter()
                    .map(|known| known.name.as_str())
                    .chain(resources.iter().flat_map(consumers))
                    .collect();
                Err(format!("there is no resource and no consumer `{name}`; {}", hint(name, &names)))
            }
        }
    }

    /// Returns the page of the resource or the consumer.
    pub(super) fn page(&self) -> String {
        let Self { resource, consumer } = self;
        match consumer {
            Some(consumer) => {
                format!("/v1/resources/{}/consumers/{}", encoded(resource), encoded(consumer))
            }
            None => format!("/v1/resources/{}", encoded(resource)),
        }
    }
}

fn consumers(resource: &ResourceStatus) -> impl Iterator<Item = &str> {
    resource.consumers.iter().map(ConsumerStatus::shown_name)
}

fn has(resource: &ResourceStatus, name: &str) -> bool {
    resource.consumers.iter().any(|known| known.is_called(name))
}

/// Returns a consumer's name in requests: that of a cgroup is its path, whatever it is called.
fn own_name(resource: &ResourceStatus, name: &str) -> String {
    let known = resource.consumers.iter().find(|known| known.is_called(name));
    known.map_or(name, |known| &known.name).to_owned()
}

fn hint(name: &str, known: &[&str]) -> String {
    match tidegate_config::nearest(name, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`tidegate status` lists them".to_owned(),
    }
}

/// Returns a name as one segment of a path or one value of a query (RFC 3986: unreserved characters stay).
fn encoded(name: &str) -> String {
    let one = |byte: u8| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    name.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use tidegate_service::status::ServiceKind;
    use tidegate_units::ConsumerName;

    use super::*;

    fn resource(name: &str, consumers: &[&str]) -> ResourceStatus {
        let consumers = consumers.iter().map(|name| {
            let name = ConsumerName::new(name).unwrap();
            tidegate_service::status::ByLaw::default().status(&name, false)
        });
        ResourceStatus {
            name: name.to_owned(),
            present: true,
            errors: None,
            uncounted: Vec::new(),
            throttle_fails: false,
            law: None,
            promise: None,
            decided: None,
            recent: None,
            consumers: consumers.collect(),
            promises: tidegate_service::status::PromiseCounts::default(),
            consumers_left_out: 0,
            reporters: Vec::new(),
            source: None,
            signal_origin: None,
        }
    }

    #[test]
    fn a_cgroup_is_meant_by_the_name_that_selects_it_and_by_its_path() {
        let mut disk = resource("disk", &["kubepods/pod5f2d"]);
        disk.consumers[0].selected_as = Some("pod:shop/db-0".to_owned());
        let status = ServiceStatus::new(ServiceKind::Agent, true, vec![disk]);
        let cgroup = |name: &str, resource| ControlTarget::find(&status, name, resource).unwrap().consumer;
        for name in ["pod:shop/db-0", "kubepods/pod5f2d"] {
            assert_eq!(cgroup(name, None).as_deref(), Some("kubepods/pod5f2d"));
            assert_eq!(cgroup(name, Some("disk")).as_deref(), Some("kubepods/pod5f2d"));
        }
        let unknown = ControlTarget::find(&status, "pod:shop/db-1", None).unwrap_err();
        assert!(unknown.contains("did you mean `pod:shop/db-0`?"), "{unknown}");
    }

    #[test]
    fn a_name_is_that_of_a_resource_or_of_one_consumer() {
        let resources = vec![resource("disk", &["vm1", "vm2", "ssd"]), resource("ssd", &["vm2"])];
        let status = ServiceStatus::new(ServiceKind::Serve, true, resources);
        let find = |name, resource| ControlTarget::find(&status, name, resource);
        let is = |resource: &str, consumer: Option<&str>| {
            Ok(ControlTarget { resource: resource.to_owned(), consumer: consumer.map(str::to_owned) })
        };
        assert_eq!(find("disk", None), is("disk", None));
        assert_eq!(find("vm1", None), is("disk", Some("vm1")));
        assert_eq!(find("ssd", None), is("ssd", None));
        assert_eq!(find("ssd", Some("disk")), is("disk", Some("ssd")));
        assert_eq!(find("vm2", Some("ssd")), is("ssd", Some("vm2")));
        for (name, resource, said) in [
            ("vm2", None, "name one with `--resource`"),
            ("vm3", None, "did you mean `vm"),
            ("vm1", Some("ssd"), "ssd has no consumer `vm1`; did you mean `vm2`?"),
            ("vm1", Some("dsik"), "there is no resource `dsik`; did you mean `disk`?"),
            ("zzz", None, "`tidegate status` lists them"),
        ] {
            let error = find(name, resource).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_name_is_one_segment_of_a_path_whatever_is_in_it() {
        let target =
            ControlTarget { resource: "disk".to_owned(), consumer: Some("a.slice/b c?#%é".to_owned()) };
        assert_eq!(target.page(), "/v1/resources/disk/consumers/a.slice%2Fb%20c%3F%23%25%C3%A9");
    }
}
