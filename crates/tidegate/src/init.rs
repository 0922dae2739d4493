//! `tidegate init`.

use std::fs;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tidegate_agent::{
    AgentConfig, AgentError, ConfigurationProposal, ConsumerPattern, ProposalRequest, take_inventory,
};
use tidegate_service::obstacles::why_not_tcp;
use tidegate_units::Latency;

use crate::failure::CommandFailure;
use crate::out;

/// The configuration of the packaged agent.
const PACKAGED: &str = "/etc/tidegate/agent.toml";

/// The ports that are proposed for the metrics, the first that is free: not 9809, which is the gateway's in all
/// examples.
const FIRST_PORT: u16 = 9810;
const LAST_PORT: u16 = 9829;

/// The socket of an agent that is started by hand, beside its configuration.
const SOCKET: &str = "agent.sock";

const EXAMPLES: &str = "\
Examples:
  tidegate init
  tidegate init -o /etc/tidegate/agent.toml --protect system.slice/postgresql.service
  tidegate init -o agent.toml --storage vg0 --protect 'iqn.*:database' --target 15ms";

/// Write an agent's configuration for this machine, as a dry run
///
/// Finds the storage of this machine and its consumers: hosts over iSCSI, NVMe/TCP or NFS, otherwise cgroups.
/// Tries which throttles work. Measures reads, first those of the consumers, and 3 s of its own where storage
/// is idle, and proposes twice their mean as the target. What was not measured is left out, unless --target
/// names it. Everything it writes is a dry run, which `tidegate dry-run off` ends.
///
/// Exit status: 0 there is a configuration, which `tidegate check` accepts; 1 there is nothing to regulate,
/// or nothing was measured; 2 the file is there already, or wrong usage.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// File to write [default: print it]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Overwrite the file
    #[arg(long, requires = "output")]
    force: bool,

    /// Volume group or device to regulate; may be given several times [default: all that consumers use]
    #[arg(long, value_name = "NAME")]
    storage: Vec<String>,

    /// Consumer that is never throttled: an initiator's name or address, or the path of a cgroup, also with
    /// *; may be given several times
    #[arg(long, value_name = "CONSUMER")]
    protect: Vec<ConsumerPattern>,

    /// Target of all resources, instead of one from the measurement
    #[arg(long, value_name = "LATENCY")]
    target: Option<Latency>,

    /// Time to watch what consumers do, 1 s to 10 min
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = watching_time)]
    watch: Duration,
}

fn watching_time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let is_right = (Duration::from_secs(1)..=Duration::from_secs(600)).contains(&time);
    if is_right { Ok(time) } else { Err("must be between 1s and 10min".to_owned()) }
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    if let Some(path) = args.output.as_deref().filter(|path| !args.force && path.exists()) {
        return Err(is_there(path));
    }
    let request = ProposalRequest {
        storages: args.storage.clone(),
        protected: args.protect.clone(),
        target: args.target,
        watched: args.watch,
        // The packaged service has a socket, which the package's folder is made for.
        socket: args.output.as_ref().filter(|path| *path != Path::new(PACKAGED)).map(|_| SOCKET.to_owned()),
        port: free_port(),
    };
    let watched = humantime::format_duration(args.watch);
    writeln!(
        out::stderr(),
        "watching storage and its consumers for {watched}, then reading from idle storage"
    )?;
    let inventory = take_inventory(&request).map_err(|error| AgentError::Blind(error.into()))?;
    let proposal = inventory.propose(&request, &origin()).map_err(CommandFailure::NothingProposed)?;
    let Some(path) = &args.output else {
        AgentConfig::parse("the proposal", &proposal.text)?;
        return Ok(write!(out::stdout(), "{}", proposal.text)?);
    };
    AgentConfig::parse(&path.display().to_string(), &proposal.text)?;
    write_whole(path, &proposal.text, args.force)?;
    Ok(write!(out::stdout(), "{}", next_steps(path, &proposal))?)
}

/// Returns the port for the metrics. If none is free, `tidegate check` tells the conflict.
fn free_port() -> u16 {
    let is_free = |port: &u16| why_not_tcp((Ipv4Addr::LOCALHOST, *port).into(), None).is_none();
    (FIRST_PORT..=LAST_PORT).find(is_free).unwrap_or(FIRST_PORT)
}

fn is_there(path: &Path) -> CommandFailure {
    CommandFailure::Usage(format!("{} is there already: `--force` overwrites it", path.display()))
}

/// Names the program, the machine and the time.
fn origin() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let time = humantime::format_rfc3339_seconds(SystemTime::now());
    format!("Written by tidegate init {} for {} at {time}.", env!("CARGO_PKG_VERSION"), host.trim())
}

/// Writes a file at once: readers see all of it or none.
fn write_whole(path: &Path, text: &str, force: bool) -> Result<(), CommandFailure> {
    use std::os::unix::fs::PermissionsExt;

    let failed = |source| CommandFailure::WriteConfiguration { path: path.to_owned(), source };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(folder.unwrap_or(Path::new(".")))
        .map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    match force {
        true => file.persist(path).map_err(|error| failed(error.error))?,
        false => file.persist_noclobber(path).map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => is_there(path),
            _ => failed(error.error),
        })?,
    };
    Ok(())
}

/// Returns the commands that lead from the file to a protected consumer.
fn next_steps(path: &Path, proposal: &ConfigurationProposal) -> String {
    let resources = proposal.resources.join(", ");
    let shown = path.display();
    let mut steps = vec![format!("tidegate check -c {shown}")];
    let is_packaged = path == Path::new(PACKAGED);
    // Commands find the socket of the packaged service by themselves.
    let of_it = if is_packaged { String::new() } else { format!(" -c {shown}") };
    if is_packaged {
        steps.extend(proposal.drop_in.map(|drop_in| {
            format!(
                "install -D -m 644 -t /etc/systemd/system/tidegate-agent.service.d \
                 /usr/share/doc/tidegate/examples/tidegate-agent.service.d/{drop_in}"
            )
        }));
        steps.push("systemctl enable --now tidegate-agent".to_owned());
    } else {
        steps.push(format!("tidegate agent -c {shown}"));
    }
    steps.push(format!("tidegate top{of_it}"));
    steps.extend(proposal.resources.iter().map(|name| format!("tidegate dry-run off {name}{of_it}")));
    format!("wrote {shown} for {resources}, all on a dry run; next:\n  {}\n", steps.join("\n  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposal(drop_in: Option<&'static str>) -> ConfigurationProposal {
        ConfigurationProposal { text: String::new(), resources: vec!["vg0".to_owned()], drop_in }
    }

    #[test]
    fn the_next_steps_are_commands_for_the_file_that_was_written() {
        assert_eq!(
            next_steps(Path::new("a.toml"), &proposal(Some("rate.conf"))),
            "wrote a.toml for vg0, all on a dry run; next:\n  tidegate check -c a.toml\n  \
             tidegate agent -c a.toml\n  tidegate top -c a.toml\n  tidegate dry-run off vg0 -c a.toml\n"
        );
        let packaged = next_steps(Path::new(PACKAGED), &proposal(Some("rate.conf")));
        for step in ["service.d/rate.conf\n  systemctl enable --now", "top\n  tidegate dry-run off vg0\n"] {
            assert!(packaged.contains(step), "{packaged}");
        }
    }

    #[test]
    fn a_file_that_is_there_stays_unless_forced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.toml");
        write_whole(&path, "old", false).unwrap();
        let error = write_whole(&path, "new", false).unwrap_err();
        assert_eq!((error.exit_status(), fs::read_to_string(&path).unwrap().as_str()), (2, "old"));
        write_whole(&path, "new", true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_time_to_watch_has_its_range() {
        assert_eq!(watching_time("5s"), Ok(Duration::from_secs(5)));
        for wrong in ["0s", "1day", "soon"] {
            assert!(watching_time(wrong).is_err(), "{wrong}");
        }
    }
}
