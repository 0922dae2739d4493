//! Configurations as files: `configurations/NAME.toml` with what is said about it in `NAME.expected` beside
//! it. After a change on purpose, `TIDEGATE_UPDATE_EXPECTED=1 cargo test -p tidegate-serve --test
//! integration configurations` writes them anew; read the difference before you commit it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_agent::AgentConfig;
use tidegate_control::{
    IntegralConfig, KneeConfig, LawConfig, LoopConfig, PidConfig, Smoothing, WindowConfig,
};
use tidegate_device::{DeviceConfig, ExponentialChange, ExponentialConfig};
use tidegate_gateway::{BackendConfig, PoolConfig, PoolLimits};
use tidegate_sched::{BucketRelease, Discipline};
use tidegate_serve::config::{ConfigError, ServeConfig, Severity};
use tidegate_units::{Bytes, Iops, Latency, ResourceName};

fn parse(text: &str) -> Result<ServeConfig, ConfigError> {
    ServeConfig::parse("tidegate.toml", text, Path::new("/etc/tidegate"))
}

fn said(text: &str) -> String {
    let said = match parse(text) {
        Ok(config) => config.warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        Err(error) => error.to_string(),
    };
    said + "\n"
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    files
}

fn examples() -> Vec<PathBuf> {
    let mut examples = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples"));
    examples.retain(|path| !path.ends_with("agent.toml"));
    examples
}

#[test]
fn every_bad_configuration_is_explained_as_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configurations");
    let update = std::env::var_os("TIDEGATE_UPDATE_EXPECTED").is_some();
    let mut wrong = Vec::new();
    for file in files(&folder) {
        let said = said(&fs::read_to_string(&file).unwrap());
        let expected = file.with_extension("expected");
        if update {
            fs::write(&expected, &said).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != said {
            wrong.push(format!("{}\n{said}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "not as expected:\n{}", wrong.join("\n"));
}

#[test]
fn every_example_is_valid_without_a_warning() {
    let examples = examples();
    assert!(examples.len() >= 4);
    for example in examples {
        assert_eq!(said(&fs::read_to_string(&example).unwrap()), "\n", "{}", example.display());
    }
}

/// Returns the file that a document shows under this name.
fn shown<'a>(document: &'a str, name: &str) -> &'a str {
    let (_, from) = document.split_once(&format!("```toml {name}\n")).unwrap();
    from.split_once("```").unwrap().0
}

#[test]
fn what_the_document_about_contracts_configures_is_valid_without_a_warning() {
    let text = shown(include_str!("../../../../docs/guide/contracts.md"), "serve.toml");
    assert_eq!(said(text), "\n");
    let pool = &parse(text).unwrap().gateway.pools[0];
    assert!(pool.exports.iter().all(|export| export.contract.is_some()), "{text}");
}

#[test]
fn what_the_document_about_bands_configures_is_valid_without_a_warning() {
    let text = shown(include_str!("../../../../docs/guide/bands.md"), "tidegate.toml");
    assert_eq!(said(text), "\n");
    let pool = &parse(text).unwrap().gateway.pools[0];
    let bands = pool.law.as_ref().and_then(|law| law.bands.as_ref()).unwrap();
    assert_eq!(bands.position(Iops::new(500.0)).to_string(), "band 2 at 20 %");
    assert_eq!(pool.exports[0].goal, Some(Latency::from_millis(15)));
    // Who is named is there, may be held, and a goal is kept by this law only.
    let wrong = |from, to| said(&text.replacen(from, to, 1));
    assert!(wrong("mining = 0.5", "minig = 0.5").contains("band 0 names minig, which there is not"));
    // Of a workload that is not here another host may know.
    assert!(wrong("mining = 0.5", "elsewhere = 0.5").contains("names elsewhere"));
    let cluster = "[cluster]\nname = 'san'\nhost = 'a'\ncarrier = { kind = 'file', path = \
        '/var/lib/tidegate/hosts' }\n[pool.array]\ncluster = true";
    let together = text.replace("mining = 0.5", "elsewhere = 0.5").replacen("[pool.array]", cluster, 1);
    assert_eq!(said(&together), "\n");
    // The default law divides what its window gives, on one host and on several.
    let auto = |text: &str| said(&text.replacen("law = \"self-tuning\"\n", "", 1));
    assert_eq!((auto(text).as_str(), auto(&together).as_str()), ("\n", "\n"));
    let held = together.replacen("goal =", "protected = true\ngoal =", 1);
    assert!(said(&held).contains("band 0 names business"));
    assert!(wrong("goal =", "protected = true\ngoal =").contains("band 0 names business"));
    assert!(
        wrong("goal =", "reservation = '9 IO/s'\ngoal =")
            .contains("which `law = \"self-tuning\"` does not know")
    );
    let contract = "contract = { iops = '9 IO/s', response_time = '9ms' }\ngoal =";
    assert!(wrong("goal =", contract).contains("`contract` has no effect"));
    let (without, _) = text.split_once("bands = [").unwrap();
    let (_, exports) = text.split_once("\n]\n").unwrap();
    // With the model of a queue, too; without bands that is by a window, and nothing is released at rates.
    let queueing = text.replacen("self-tuning", "queueing-model", 1);
    let by_rates = "self_tuning = { floor = '5 IO/s' }\nrelease = { ahead = 1 }\n";
    let with = |text: &str| text.replacen("target =", &format!("{by_rates}target ="), 1);
    assert_eq!((said(&queueing), said(&with(&queueing))), ("\n".to_owned(), "\n".to_owned()));
    assert!(
        said(&queueing.replacen("goal =", "reservation = '9 IO/s'\ngoal =", 1))
            .contains("which `law = \"queueing-model\"` does not know")
    );
    let shared = with(&format!("{without}{exports}").replacen("self-tuning", "queueing-model", 1));
    for key in ["`floor` has no effect", "`release` has no effect", "only where there are `bands`"] {
        assert!(said(&shared).contains(key), "{}", said(&shared));
    }
    let other = queueing.replacen("target =", "integral = { floor = '5 IO/s' }\ntarget =", 1);
    assert!(said(&other).contains("the law is `queueing-model`"), "{}", said(&other));
    let window = format!("{without}{exports}").replace("self-tuning", "window");
    assert!(said(&window).contains("`goal` has no effect"), "{}", said(&window));
}

/// A contract under the law `auto` has an effect beside a reservation, a goal and other hosts.
#[test]
fn the_law_auto_keeps_contracts_on_one_host_and_across_hosts() {
    let text = shown(include_str!("../../../../docs/guide/contracts.md"), "serve.toml");
    assert_eq!(said(shown(include_str!("../../../../docs/guide/contracts.md"), "auto.toml")), "\n");
    let auto = text.replacen("\"integral\"", "\"auto\"", 1);
    let more = auto.replacen("shares = 200", "shares = 200\nreservation = '9 IO/s'\ngoal = '20ms'", 1);
    let hosts = "[cluster]\nname = 'san'\nhost = 'a'\ncarrier = { kind = 'file', path = \
        '/var/lib/tidegate/hosts' }\n[pool.disk]\ncluster = true";
    let together = more.replacen("[pool.disk]", hosts, 1);
    for text in [&auto, &more, &together] {
        assert_eq!(said(text), "\n", "{text}");
        assert!(!parse(text).unwrap().contracts.is_empty(), "they are judged: {text}");
    }
    let integral = text.replacen("[pool.disk]", hosts, 1);
    assert!(said(&integral).contains("hosts cannot keep contracts together"), "{}", said(&integral));
    let release = auto.replacen("target =", "release = { ahead = 1 }\ntarget =", 1);
    assert!(said(&release).contains("`release` has no effect"), "{}", said(&release));
    let limit = auto.replacen("shares = 200", "limit = { iops = '39 IO/s' }", 1);
    assert!(said(&limit).contains("the limit lets no more than 39 IO/s through"), "{}", said(&limit));
    let protected = auto.replacen("shares = 200", "protected = true", 1);
    assert!(said(&protected).contains("its contract holds it to nothing"), "{}", said(&protected));
    let window = text.replacen("\"integral\"", "\"window\"", 1);
    assert!(
        said(&window).contains("only `law = \"auto\"` and `\"integral\"` keep contracts"),
        "{}",
        said(&window)
    );
}

#[test]
fn the_agents_example_is_valid_without_a_warning() {
    let config =
        AgentConfig::parse("agent.toml", include_str!("../../../../docs/examples/agent.toml")).unwrap();
    assert_eq!((config.resources.len(), config.warnings.len()), (2, 0));
}

#[test]
fn the_complete_example_states_the_defaults() {
    let text =
        fs::read_to_string(examples().into_iter().find(|path| path.ends_with("complete.toml")).unwrap());
    let text = text.unwrap().replacen("[pool.shared]\n", "[pool.shared]\nlaw = \"window\"\n", 1);
    let config = parse(&text).unwrap();
    let [windowed, delayed, promised, averaged, shared, far] = &config.gateway.pools[..] else {
        panic!("six pools")
    };
    let default = |pool: &PoolConfig, law, target| {
        LoopConfig::new(ResourceName::new(pool.name.as_str()).unwrap(), Latency::from_millis(target), law)
    };
    assert_eq!(windowed.law, Some(default(windowed, LawConfig::Window(WindowConfig::default()), 15)));
    assert_eq!(delayed.law, Some(default(delayed, LawConfig::Pid(PidConfig::default()), 15)));
    let integral = IntegralConfig { greatest: Some(Iops::new(1_000.0)), ..IntegralConfig::default() };
    assert_eq!(promised.law, Some(default(promised, LawConfig::Integral(integral), 50)));
    assert_eq!((promised.release, windowed.discipline), (BucketRelease::default(), Discipline::StartTags));
    assert_eq!(windowed.depth, PoolConfig::DEFAULT_DEPTH);
    let example = PoolLimits {
        export_sessions: Some(128),
        source_sessions: Some(192),
        idle_timeout: Some(Duration::from_secs(12 * 3600)),
        ..PoolLimits::default()
    };
    assert_eq!(windowed.limits, example);
    assert_eq!(averaged.law.as_ref().unwrap().smoothing, Smoothing::PerInterval { past_weight: 0.998 });
    assert_eq!(averaged.law.as_ref().unwrap().knee, Some(KneeConfig::default()));
    assert_eq!(shared.law, Some(default(shared, LawConfig::Window(WindowConfig::across_hosts()), 25)));
    assert_eq!(config.cluster.as_ref().unwrap().pools(), std::slice::from_ref(&shared.name));
    // What is written as a default is what nothing gives.
    let silent = parse(
        "listen = ['unix:/s']\n[pool.windowed]\nbackend = { kind = 'file' }\ntarget = '15ms'\n\
         export.volume = { path = '/dev/vg0/volume', limit = { iops = '500 IO/s', bandwidth = '20MiB/s' } }\n\
         [pool.delayed]\nbackend = { kind = 'emulated', preset = 'sata-stripe' }\nexport.scratch = { size = \
         '4GiB' }\n\
         [pool.promised]\nbackend = { kind = 'emulated', preset = 'dnes-309170w' }\nlaw = 'integral'\ntarget \
         = '50ms'\n\
         export.tenant = { size = '2GiB', contract = { iops = '40 IO/s', response_time = '36ms' } }\n\
         [pool.far]\nbackend = { kind = 'nbd', address = 'tcp:10.0.0.1:10809' }\nexport.vm1 = {}",
    )
    .unwrap();
    assert_eq!(silent.drain_deadline, config.drain_deadline);
    assert_eq!(silent.gateway.pools[0].backend, windowed.backend);
    assert_eq!(silent.gateway.pools[0].exports[0].limit, windowed.exports[0].limit);
    assert_eq!(silent.gateway.pools[0].exports[0].shares, windowed.exports[0].shares);
    assert_eq!(silent.gateway.pools[1].backend, delayed.backend);
    assert_eq!(silent.gateway.pools[2].exports, promised.exports);
    assert_eq!(silent.gateway.pools[3], *far);
}

/// Keys of the complete example whose values are examples, not defaults.
const WITHOUT_DEFAULT: &[&str] = &[
    "listen",
    "tls",
    "allow",
    "metrics",
    "admit",
    "name",
    "host",
    "carrier",
    "cluster",
    "backend",
    "law",
    "target",
    "past_weight",
    "path",
    "size",
    "upstream",
    "export_sessions",
    "source_sessions",
    "idle_timeout",
    "limit",
    "contract",
    "greatest",
    "reservation",
    "description",
];

#[test]
fn the_document_states_the_defaults_of_the_complete_example() {
    let document = include_str!("../../../../docs/reference/configuration.md");
    let complete = include_str!("../../../../docs/examples/complete.toml");
    let mut compared = 0;
    for (key, value) in
        complete.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = "))
    {
        if !WITHOUT_DEFAULT.contains(&key) && value != "\"auto\"" {
            let row = format!("| `{key}` | ");
            let rows: Vec<_> = document.lines().filter(|line| line.starts_with(&row)).collect();
            let stated = rows.iter().any(|row| row.contains(&format!(" | `{value}` | ")));
            assert!(stated, "the default of `{key}` is {value}; the document says {rows:?}");
            compared += 1;
        }
    }
    assert!(compared >= 25, "only {compared} defaults were compared");
}

/// One value in an otherwise valid configuration.
fn with(place: &str, value: &str) -> Result<ServeConfig, ConfigError> {
    let mut lines = vec![
        ("listen", "['tcp:127.0.0.1:0']".to_owned()),
        ("pool.p.backend", "{ kind = 'emulated', preset = 'dnes-309170w' }".to_owned()),
        ("pool.p.target", "'15ms'".to_owned()),
        ("pool.p.export.e.size", "'4KiB'".to_owned()),
    ];
    if !value.contains("pool.p.law") {
        lines.push(("pool.p.law", "'window'".to_owned()));
    }
    lines.retain(|(key, _)| *key != place);
    lines.push((place, value.to_owned()));
    let text: String = lines.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
    parse(&text)
}

#[test]
fn an_exponential_server_is_a_backend_too() {
    let backend = "{ kind = 'emulated', exponential = { rate = '1000 IO/s', capacity = '64GiB' } }";
    let config = with("pool.p.backend", backend).unwrap();
    let BackendConfig::Emulated { device: DeviceConfig::Exponential(server), .. } =
        &config.gateway.pools[0].backend
    else {
        panic!("{:?}", config.gateway.pools[0].backend)
    };
    let expected = ExponentialConfig { rate: Iops::new(1_000.0), servers: 1, capacity: Bytes::from_gib(64) };
    assert_eq!(*server, expected);
}

#[test]
fn what_becomes_of_an_exponential_server_is_in_the_order_of_time() {
    let server = |changes: &str| {
        let server =
            format!("{{ rate = '100 IO/s', servers = 2, capacity = '64GiB', changes = [{changes}] }}");
        with("pool.p.backend", &format!("{{ kind = 'emulated', exponential = {server} }}"))
    };
    let change = |after, rate, servers| ExponentialChange {
        after: Latency::from_millis(after),
        rate: Iops::new(rate),
        servers,
    };
    let given = "{ after = '40s', rate = '960 IO/s' }, { after = '80s', rate = '1920 IO/s', servers = 4 }, \
                 { after = '90s', rate = '480 IO/s' }";
    let config = server(given).unwrap();
    let BackendConfig::Emulated { changes, .. } = &config.gateway.pools[0].backend else {
        panic!("{:?}", config.gateway.pools[0].backend)
    };
    let expected = [change(40_000, 960.0, 2), change(80_000, 1_920.0, 4), change(90_000, 480.0, 4)];
    assert_eq!(*changes, expected);
    for (given, expected) in [
        ("{ rate = '960 IO/s' }", "needs `after`"),
        ("{ after = '1s' }", "needs `rate`"),
        ("{ after = '1s', rate = '0 IO/s' }", "`rate` must be more than nothing"),
        ("{ after = '1s', rate = '1 IO/s', servers = 0 }", "`servers` must be 1 to 1024"),
        (
            "{ after = '2s', rate = '1 IO/s' }, { after = '1s', rate = '2 IO/s' }",
            "later than that of the change before",
        ),
    ] {
        let said = server(given).unwrap_err().to_string();
        assert!(said.contains(expected), "{expected:?} is not in:\n{said}");
    }
}

#[test]
fn an_automatic_set_point_is_under_the_whole_target() {
    let config = with("pool.p.set_point", "'auto'").unwrap();
    let law = config.gateway.pools[0].law.clone().unwrap();
    assert_eq!((law.set_point(), law.knee), (Latency::from_millis(15), Some(KneeConfig::default())));
    let places = [
        ("fraction = 0.5", true),
        ("fraction = 0.49", false),
        ("fraction = 1.0", false),
        ("floor = '15ms'", true),
        ("floor = '15001us'", false),
        ("floor = '0ms'", false),
        ("half_life = '1min'", true),
        ("half_life = '59s'", false),
    ];
    for (keys, valid) in places {
        let set_point = format!("'auto'\npool.p.knee = {{ {keys} }}");
        assert_eq!(with("pool.p.set_point", &set_point).is_ok(), valid, "{keys}");
    }
    let protected = "'auto'\npool.p.export.e.protected = true";
    let said = with("pool.p.set_point", protected).unwrap_err().to_string();
    assert!(said.contains("a promise to protected exports"), "{said}");
    let said = with("pool.p.set_point", "'auto'\npool.p.law = 'pid'").unwrap_err().to_string();
    assert!(said.contains("only the window law's set point"), "{said}");
}

#[test]
fn the_boundary_between_valid_and_invalid() {
    let boundaries = [
        ("pool.p.depth", "1", "0"),
        ("pool.p.depth", "1024", "1025"),
        ("pool.p.target", "'2ns'", "'0ns'"),
        ("pool.p.set_point", "1", "1.0000001"),
        ("pool.p.set_point", "0.0001", "0.0"),
        ("pool.p.set_point", "'auto'", "'automatic'"),
        ("pool.p.past_weight", "0", "-0.001"),
        ("pool.p.past_weight", "0.999", "1.0"),
        ("pool.p.interval", "'10ms'", "'9999us'"),
        ("pool.p.interval", "'1min'", "'60001ms'"),
        ("pool.p.window.gamma", "1.0", "1.01"),
        ("pool.p.window.greatest", "0.25", "0.24"),
        ("pool.p.export.e.shares", "1", "0"),
        ("pool.p.export.e.shares", "1_000_000", "1_000_001"),
        ("pool.p.export.e.shares", "0xff", "0xffffffffff"),
        ("pool.p.export.e.size", "'4096B'", "'4095B'"),
        ("pool.p.export.e.limit.iops", "'0.1 IO/s'", "'0 IO/s'"),
        ("pool.p.limits.session_memory", "'32MiB'", "'32767KiB'"),
        ("pool.p.limits.sessions", "1", "0"),
        ("pool.p.limits.export_sessions", "256", "257"),
        ("pool.p.limits.source_sessions", "1", "0"),
        ("pool.p.limits.idle_timeout", "'1min'", "'1 minute ago'"),
        ("listen", "['tcp:[::]:65535']", "['tcp:[::]:65536']"),
        ("listen", "['tcp:[::]:0', 'tcp:[::]:0']", "['tcp:[::]:1', 'tcp:[::]:1']"),
        ("metrics", "'127.0.0.1:0'", "'127.0.0.1'"),
    ];
    for (key, valid, invalid) in boundaries {
        if let Err(error) = with(key, valid) {
            panic!("{key} = {valid} is valid: {error}");
        }
        let Err(ConfigError::Invalid(findings)) = with(key, invalid) else {
            panic!("{key} = {invalid} is invalid")
        };
        let errors = findings.iter().filter(|finding| finding.severity() == Severity::Error).count();
        assert_eq!(errors, 1, "{key} = {invalid}: {findings:?}");
    }
}

#[test]
fn more_contracts_than_can_be_measured_beside_the_service_are_warned_about() {
    let pool = |exports: usize| {
        let contract = "{ iops = '1 IO/s', size = '4KiB', response_time = '60ms' }";
        let export = |at| format!("export.w{at} = {{ size = '1MiB', contract = {contract} }}\n");
        let exports: String = (0..exports).map(export).collect();
        format!(
            "listen = ['unix:nbd.sock']\n[pool.p]\nbackend = {{ kind = 'emulated', preset = 'dnes-309170w' \
                }}\n\
             law = 'integral'\ntarget = '60ms'\n{exports}"
        )
    };
    assert_eq!(said(&pool(256)), "\n");
    let many = said(&pool(257));
    assert!(many.contains("contracts are not judged: of more than 256 it would take too long"), "{many}");
}

#[test]
fn relative_paths_start_at_the_configurations_folder() {
    let config =
        parse("listen = ['unix:s']\n[pool.p]\nbackend = { kind = 'file' }\nexport.e = { path = 'e.raw' }")
            .unwrap();
    assert_eq!(config.gateway.listen[0].endpoint.to_string(), "unix:/etc/tidegate/s");
    assert_eq!(format!("{:?}", config.gateway.pools[0].exports[0].store), "Path(\"/etc/tidegate/e.raw\")");
}

#[test]
fn files_that_cannot_be_used_are_found_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("disk.raw"), [0u8; 4096]).unwrap();
    let path = folder.path().join("tidegate.toml");
    let load = |text: &str| {
        fs::write(&path, text).unwrap();
        match ServeConfig::load(&path) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    };
    let with_export = |file: &str| {
        format!(
            "listen = ['unix:s']\n[pool.p]\nbackend = {{ kind = 'file' }}\nexport.e = {{ path = '{file}' }}\n"
        )
    };
    assert_eq!(load(&with_export("disk.raw")), "");
    let missing = load(&with_export("disk.rwa"));
    assert!(missing.contains("tidegate.toml:4:21: `") && missing.contains("no such file"), "{missing}");
    assert!(load(&with_export(".")).contains("neither a regular file nor a block device"));
    assert!(load(&with_export("/dev/null")).contains("neither a regular file nor a block device"));
    let socket = load(&with_export("disk.raw").replace("unix:s", "unix:disk.raw"));
    assert!(socket.contains("tidegate.toml:1:11: `") && socket.contains("is not a socket"), "{socket}");
    let folderless = load(&with_export("disk.raw").replace("unix:s", "unix:no/s"));
    assert!(folderless.contains("there is no folder") && folderless.contains("create it"), "{folderless}");
    // The packaged service finds its folder, which is not there before its first start.
    assert_eq!(load(&with_export("disk.raw").replace("unix:s", "unix:/run/tidegate/nbd.sock")), "");
}

#[test]
fn volumes_that_are_in_use_or_probably_not_meant_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("disk.raw"), [0u8; 4096]).unwrap();
    fs::write(folder.path().join("empty.raw"), []).unwrap();
    std::os::unix::fs::symlink("disk.raw", folder.path().join("again.raw")).unwrap();
    let path = folder.path().join("tidegate.toml");
    let findings = |one: &str, two: &str| {
        let text = format!(
            "listen = ['unix:s']\n[pool.p]\nbackend = {{ kind = 'file' }}\nexport.one = {one}\nexport.two = \
                {two}\n"
        );
        fs::write(&path, text).unwrap();
        let findings = match ServeConfig::load(&path) {
            Ok(config) => config.warnings,
            Err(ConfigError::Invalid(findings)) => findings,
            Err(error) => panic!("{error}"),
        };
        findings.iter().map(|warning| (warning.line(), warning.message().to_owned())).collect::<Vec<_>>()
    };
    let twice = findings("{ path = 'disk.raw' }", "{ path = 'again.raw', read_only = true }");
    assert!(matches!(&twice[..], [(5, message)] if message.contains("another export's")), "{twice:?}");
    let shared = "{ path = 'disk.raw', shared_volume = true }";
    assert_eq!(findings(shared, shared), []);
    let readers = "{ path = 'disk.raw', read_only = true }";
    assert_eq!(findings(readers, readers), []);
    let empty = findings("{ path = 'disk.raw' }", "{ path = 'empty.raw' }");
    assert!(matches!(&empty[..], [(5, message)] if message.ends_with("is empty")), "{empty:?}");
    let mut image = [0; 512];
    image[..4].copy_from_slice(b"QFI\xfb");
    fs::write(folder.path().join("empty.raw"), image).unwrap();
    let image = findings("{ path = 'disk.raw' }", "{ path = 'empty.raw' }");
    assert!(matches!(&image[..], [(5, message)] if message.contains("qcow2")), "{image:?}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = ServeConfig::load(Path::new("/nonexistent/tidegate.toml")).unwrap_err();
    assert!(matches!(error, ConfigError::Read { .. }));
    assert!(error.to_string().starts_with("/nonexistent/tidegate.toml: "), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        let _ = said(&text);
    }

    /// Mutations of a valid configuration get further than noise does.
    #[test]
    fn a_damaged_configuration_never_panics(
        which in 0usize..4,
        cut in any::<prop::sample::Index>(),
        length in 0usize..40,
        insert in "[a-z0-9\"'{}\\[\\]=.,µ\\n -]{0,12}",
    ) {
        let mut text: Vec<char> = fs::read_to_string(&examples()[which]).unwrap().chars().collect();
        let start = cut.index(text.len());
        let end = (start + length).min(text.len());
        text.splice(start..end, insert.chars());
        let text: String = text.into_iter().collect();
        if let Err(ConfigError::Invalid(findings)) = parse(&text) {
            prop_assert!(!findings.is_empty());
            let lines = text.split('\n').count();
            prop_assert!(findings.iter().all(|finding| finding.line() >= 1 && finding.line() <= lines));
        }
    }
}

fn openssl(folder: &Path, name: &str) {
    let words =
        ["req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=x"];
    let [key, certificate] = ["key", "pem"].map(|kind| folder.join(format!("{name}.{kind}")));
    let mut command = Command::new("openssl");
    let output = command.args(words).arg("-keyout").arg(key).arg("-out").arg(certificate).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn files_for_an_encrypted_connection_are_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.toml");
    let load = |keys: &str| {
        let pool = "[pool.array]\ncluster = true\ntarget = '15ms'\nexport.x = { size = '16MiB' }\n\
                    backend = { kind = 'emulated', preset = 'sata-stripe' }\n";
        let carrier = format!("carrier = {{ kind = 'nats', servers = ['tls://127.0.0.1:4222'], {keys} }}");
        fs::write(&path, format!("listen = ['tcp:127.0.0.1:0']\n[cluster]\nname = 'c'\n{carrier}\n{pool}"))
            .unwrap();
        ServeConfig::load(&path).err().map(|error| error.to_string()).unwrap_or_default()
    };
    for name in ["one", "other"] {
        openssl(folder.path(), name);
    }
    let identity = "certificate_file = 'one.pem', private_key_file = 'one.key'";
    assert_eq!(load(&format!("ca_file = 'other.pem', {identity}")), "");
    for (keys, place, expected) in [
        ("ca_file = 'none.pem'", "4:74: `", "there is no such file"),
        ("ca_file = 'one.key'", "4:74: `", "holds no certificate in PEM form"),
        ("tls = true, credentials_file = 'one.pem'", "4:95: `", "holds no credentials"),
        ("tls = true, token_file = '.'", "4:89: `", "is a directory"),
        ("certificate_file = 'one.pem', private_key_file = 'other.pem'", "4:113: `", "holds no private key"),
        ("certificate_file = 'one.pem', private_key_file = 'other.key'", "4:1: ", "do not go together"),
        ("replicas = 1", "4:1: ", "there must be `tls = true`"),
    ] {
        let said = load(keys);
        assert!(said.contains(&format!("tidegate.toml:{place}")), "{keys}: {said}");
        assert!(said.to_lowercase().contains(&expected.to_lowercase()), "{keys}: {said}");
    }
}
