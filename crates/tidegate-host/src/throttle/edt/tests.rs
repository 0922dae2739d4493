//! The program itself, on the kernel that runs here: which packets it chooses, and when they are to leave. It
//! takes the right to load programs, and a Linux that runs them on made-up packets; that fq then holds them
//! is for the lab.

use aya::programs::{TestRun, TestRunOptions};
use tidegate_testing::{ALONE, Lack, has_namespaces, lacks, test_command};

use super::super::{left_in_kernel, undo};
use super::*;

const SOMEBODY: &str = "10.0.0.11";
const SOMEBODY_V6: &str = "fd00::11";
const SLOT: u32 = 3;
const HELD: u32 = 0x71de_0001;

const ACK: u8 = 0x10;
const SYN: u8 = 0x02;

/// A packet as it comes to an interface.
struct Packet {
    to: IpAddr,
    from_port: u16,
    flags: u8,
    /// The length of the TCP header in words of four bytes: more than 5 with options.
    words: u8,
    payload: Vec<u8>,
}

impl Packet {
    fn to(address: &str) -> Self {
        Self { to: address.parse().unwrap(), from_port: 3260, flags: ACK, words: 8, payload: Vec::new() }
    }

    fn beginning_with(self, bytes: &[u8]) -> Self {
        Self { payload: [bytes, &[0; 24]].concat(), ..self }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut tcp = vec![0; usize::from(self.words) * 4];
        tcp[..2].copy_from_slice(&self.from_port.to_be_bytes());
        tcp[12] = self.words << 4;
        tcp[13] = self.flags;
        tcp.extend(&self.payload);
        let length = u16::try_from(tcp.len()).unwrap();
        let mut bytes = vec![0; 12];
        match self.to {
            IpAddr::V4(to) => {
                bytes.extend([0x08, 0x00, 0x45, 0]);
                bytes.extend((length + 20).to_be_bytes());
                bytes.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1]);
                bytes.extend(to.octets());
            }
            IpAddr::V6(to) => {
                bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                bytes.extend(length.to_be_bytes());
                bytes.extend([6, 64]);
                bytes.extend([0; 16]);
                bytes.extend(to.octets());
            }
        }
        bytes.extend(tcp);
        bytes
    }
}

/// The class that the program gives a packet, and its departure time.
fn run(edt: &Edt, packet: &Packet) -> (u32, u64) {
    run_with_priority(edt, packet, 0).0
}

/// Returns the same as `run`, and the packet's priority afterwards.
fn run_with_priority(edt: &Edt, packet: &Packet, priority: u32) -> ((u32, u64), u32) {
    // struct __sk_buff.
    const CONTEXT: usize = 192;
    const PRIORITY: usize = 32;
    const DEPARTURE: usize = 152;
    let mut before = [0_u8; CONTEXT];
    before[PRIORITY..PRIORITY + 4].copy_from_slice(&priority.to_ne_bytes());
    let mut after = [0_u8; CONTEXT];
    let mut packet_after = [0; 2_048];
    let answer = edt
        .program
        .classifier()
        .test_run(TestRunOptions {
            data_in: Some(&packet.bytes()),
            data_out: Some(&mut packet_after),
            ctx_in: Some(&before),
            ctx_out: Some(&mut after),
            ..TestRunOptions::new()
        })
        .unwrap();
    let departure = u64::from_ne_bytes(after[DEPARTURE..DEPARTURE + 8].try_into().unwrap());
    let priority = u32::from_ne_bytes(after[PRIORITY..PRIORITY + 4].try_into().unwrap());
    ((answer.return_value, departure), priority)
}

/// The monotonic clock, which departure times are of.
fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// Loads the program. Says that the test is skipped, and returns `None`, without the right to do so.
fn loaded(packets: DelayedPackets) -> Option<Edt> {
    match Edt::new(packets, &[2049, 3260, 4420, 10_000].into(), None) {
        Ok(edt) => Some(edt),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => lacks(Lack::Bpf, error),
        Err(error) => panic!("{error}"),
    }
}

/// With `SOMEBODY`, by both families, delayed for that long.
fn holding(packets: DelayedPackets, delay: Latency) -> Option<Edt> {
    let mut edt = loaded(packets)?;
    edt.program.set_delay(SLOT, delay).unwrap();
    for address in [SOMEBODY, SOMEBODY_V6] {
        edt.program.put(address.parse().unwrap(), SLOT).unwrap();
    }
    Some(edt)
}

#[test]
fn only_packets_from_the_ports_to_members_are_held() {
    let Some(edt) = holding(DelayedPackets::All, Latency::from_millis(20)) else { return };
    for address in [SOMEBODY, SOMEBODY_V6] {
        let before = monotonic();
        let (class, departure) = run(&edt, &Packet::to(address));
        let after = monotonic();
        assert_eq!(class, HELD, "{address}");
        assert!((before + 20_000_000..=after + 20_000_000).contains(&departure), "{address}: {departure}");
    }
    for other in ["10.0.0.12", "fd00::12", "255.255.0.11"] {
        assert_eq!(run(&edt, &Packet::to(other)).0, 0, "{other}");
    }
    assert_eq!(run(&edt, &Packet { from_port: 3261, ..Packet::to(SOMEBODY) }).0, 0);
    assert_eq!(run(&edt, &Packet { flags: SYN, ..Packet::to(SOMEBODY) }).0, HELD);
}

#[test]
fn classifications_are_told_by_the_headers_whatever_their_options() {
    for (packets, acks, responses) in [
        (DelayedPackets::All, HELD, HELD),
        (DelayedPackets::Acks, HELD, 0),
        (DelayedPackets::Responses, HELD, HELD),
    ] {
        let Some(edt) = holding(packets, Latency::from_millis(5)) else { return };
        for address in [SOMEBODY, SOMEBODY_V6] {
            for words in [5, 8, 15] {
                let of = |packet: Packet| run(&edt, &Packet { words, ..packet }).0;
                let what = format!("{packets:?}, {address}, {words}");
                assert_eq!(of(Packet::to(address)), acks, "{what}");
                assert_eq!(of(Packet::to(address).beginning_with(&[0x21])), responses, "{what}");
                assert_eq!(of(Packet::to(address).beginning_with(&[0x31])), responses, "{what}");
                let all = if packets == DelayedPackets::All { HELD } else { 0 };
                assert_eq!(of(Packet::to(address).beginning_with(&[0x25])), all, "read data: {what}");
                assert_eq!(of(Packet { flags: SYN | ACK, ..Packet::to(address) }), all, "{what}");
            }
        }
    }
}

#[test]
fn responses_are_told_by_the_protocol_of_their_port() {
    let Some(edt) = holding(DelayedPackets::Responses, Latency::from_millis(5)) else { return };
    const R2T: [u8; 4] = [0x09, 0, 0x18, 0];
    const CAPSULE: [u8; 4] = [0x05, 0, 0x18, 0];
    const DATA: [u8; 4] = [0x07, 0x0c, 0x18, 0x18];
    const WRITTEN: [u8; 4] = [0x80, 0, 0, 0xc8];
    const READ: [u8; 4] = [0x80, 0x01, 0, 0x94];
    for (from_port, held, others) in [
        (4420, vec![R2T, CAPSULE], vec![DATA, WRITTEN, READ, [0x31, 0, 0, 0]]),
        (2049, vec![WRITTEN], vec![READ, R2T, CAPSULE, DATA]),
        (3260, vec![[0x31, 0, 0, 0]], vec![R2T, CAPSULE, WRITTEN]),
        // No member's: any of them.
        (10_000, vec![R2T, CAPSULE, WRITTEN, [0x21, 0, 0, 0]], vec![DATA, READ]),
    ] {
        for address in [SOMEBODY, SOMEBODY_V6] {
            let of = |beginning: &[u8; 4]| {
                run(&edt, &Packet { from_port, ..Packet::to(address) }.beginning_with(beginning)).0
            };
            assert!(held.iter().all(|one| of(one) == HELD), "{from_port}, {address}");
            assert!(others.iter().all(|one| of(one) == 0), "{from_port}, {address}");
        }
    }
}

#[test]
fn a_packet_cut_short_is_not_held_for_what_it_does_not_say() {
    let Some(edt) = holding(DelayedPackets::Responses, Latency::from_millis(5)) else { return };
    let mut packet = Packet::to(SOMEBODY);
    packet.words = 5;
    packet.payload = vec![0x21, 0, 0, 0];
    assert_eq!(run(&edt, &packet).0, HELD, "four bytes are all that is looked at");
    packet.payload = vec![0x21, 0, 0];
    assert_eq!(run(&edt, &packet).0, 0);
    packet.payload = Vec::new();
    packet.flags = SYN;
    assert_eq!(run(&edt, &packet).0, 0);
}

#[test]
fn nothing_overtakes_when_the_delay_shrinks_or_ends() {
    let Some(mut edt) = holding(DelayedPackets::All, Latency::from_millis(3_000)) else { return };
    let (_, first) = run(&edt, &Packet::to(SOMEBODY));
    edt.program.set_delay(SLOT, Latency::from_millis(2)).unwrap();
    assert_eq!(run(&edt, &Packet::to(SOMEBODY)), (HELD, first), "with the one before it, not earlier");
    // A released member keeps the order, too.
    edt.program.put(SOMEBODY.parse().unwrap(), RELEASED).unwrap();
    assert_eq!(run(&edt, &Packet::to(SOMEBODY)), (HELD, first));
    // Another member's packets are of other connections.
    let (_, other) = run(&edt, &Packet::to(SOMEBODY_V6));
    assert!(other < first, "{other} < {first}");
}

#[test]
fn who_was_removed_goes_the_direct_way_and_starts_anew() {
    let Some(mut edt) = holding(DelayedPackets::All, Latency::from_millis(30_000)) else { return };
    let address: IpAddr = SOMEBODY.parse().unwrap();
    run(&edt, &Packet::to(SOMEBODY));
    edt.program.remove(address).unwrap();
    edt.program.remove(address).unwrap();
    assert_eq!(run(&edt, &Packet::to(SOMEBODY)), (0, 0));
    edt.program.set_delay(SLOT, Latency::from_millis(1)).unwrap();
    edt.program.put(address, SLOT).unwrap();
    assert!(run(&edt, &Packet::to(SOMEBODY)).1 < monotonic() + 1_000_000);
}

#[test]
fn what_fq_would_send_at_once_is_held_all_the_same() {
    let Some(edt) = holding(DelayedPackets::All, Latency::from_millis(20)) else { return };
    assert_eq!(run_with_priority(&edt, &Packet::to(SOMEBODY), 7).1, 6);
    assert_eq!(run_with_priority(&edt, &Packet::to(SOMEBODY), 5).1, 5);
    assert_eq!(run_with_priority(&edt, &Packet::to("10.0.0.12"), 7).1, 7, "it is not delayed");
}

#[test]
fn a_stranger_that_knows_the_number_can_let_everybody_go() {
    let Some(edt) = holding(DelayedPackets::All, Latency::from_millis(5_000)) else { return };
    release(&[edt.program.id()].into()).unwrap();
    assert!(run(&edt, &Packet::to(SOMEBODY)).1 <= monotonic());
    assert_eq!(run(&edt, &Packet::to(SOMEBODY)).0, HELD, "in order");
}

#[test]
fn who_remembers_nothing_finds_the_program_at_our_root_and_removes_both() {
    if has_namespaces(&["--net", "--mount"]) {
        let mut test = test_command(module_path!(), "a_program_at_our_root_is_undone", &ALONE);
        assert!(test.status().unwrap().success(), "see above");
    }
}

#[test]
#[ignore = "another test starts this one, where it undoes nothing of other programs"]
fn a_program_at_our_root_is_undone() {
    const LOOPBACK: u32 = 1;
    let Some(mut edt) = holding(DelayedPackets::All, Latency::from_millis(5_000)) else { return };
    edt.tc.add_root(LOOPBACK).unwrap();
    edt.attach(LOOPBACK).unwrap();
    let programs: Vec<_> = edt.tc.filters(LOOPBACK).unwrap().iter().map(|filter| filter.program).collect();
    assert_eq!(programs, [edt.program.id()]);
    // The machine's cgroups may be limited meanwhile.
    let delays = || left_in_kernel().unwrap().iter().any(|what| what.contains("program"));
    assert!(delays());
    release(&programs.into_iter().collect()).unwrap();
    assert!(!delays());
    edt.program.set_delay(SLOT, Latency::from_millis(5_000)).unwrap();
    let found = undo().unwrap();
    assert_eq!((found.interfaces.as_slice(), found.table), (&["lo".to_owned()][..], false));
    assert!(run(&edt, &Packet::to(SOMEBODY)).1 <= monotonic(), "delayed packets could leave at once");
    assert!(undo().unwrap().nothing());
}

#[test]
fn the_maps_have_the_room_that_is_said() {
    let Some(mut edt) = loaded(DelayedPackets::All) else { return };
    assert!(edt.program.set_delay(edt::SLOTS - 1, Latency::ZERO).is_ok());
    assert!(edt.program.set_delay(edt::SLOTS, Latency::ZERO).is_err());
    let address = |number: u32| IpAddr::from(number.to_be_bytes());
    for number in 0..edt::MOST_MEMBERS {
        edt.program.put(address(number), SLOT).unwrap();
    }
    assert!(edt.program.put(address(edt::MOST_MEMBERS), SLOT).is_err());
}

#[test]
fn who_finds_no_room_is_named() {
    let Some(mut edt) = loaded(DelayedPackets::All) else { return };
    let most = edt::MOST_MEMBERS;
    let hold = |count: u32| ThrottleRequest {
        resource: tidegate_units::ResourceName::new("vg0").unwrap(),
        members: (0..count).map(|number| IpAddr::from((0x7f00_0000 + number).to_be_bytes())).collect(),
        delay: Latency::from_millis(5),
        own_delays: BTreeMap::new(),
        limits: BTreeMap::new(),
        cgroups: BTreeMap::new(),
    };
    edt.plan.take(Instant::ZERO, &[hold(most + 2)]);
    edt.settled = false;
    let error = edt.write_members(Instant::ZERO).unwrap_err().to_string();
    assert_eq!(error, "127.1.0.0 and 1 others are not throttled: there is room for 65536 members");
    edt.plan.take(Instant::ZERO, &[hold(most)]);
    edt.write_members(Instant::ZERO).unwrap();
    assert!(edt.settled);
}

#[test]
fn of_two_delays_the_longer_one_is_a_members_and_its_slot_stays() {
    let Some(mut edt) = loaded(DelayedPackets::All) else { return };
    let hold = |name: &str, millis: u64| ThrottleRequest {
        resource: tidegate_units::ResourceName::new(name).unwrap(),
        members: [SOMEBODY.parse().unwrap()].into(),
        delay: Latency::from_millis(millis),
        own_delays: BTreeMap::new(),
        limits: BTreeMap::new(),
        cgroups: BTreeMap::new(),
    };
    let mut delay = |a, b| {
        edt.settled &= !edt.plan.take(Instant::ZERO, &[hold("a", a), hold("b", b)]);
        edt.write_delays(Instant::ZERO).unwrap();
        edt.write_members(Instant::ZERO).unwrap();
        let slot = edt.members[&SOMEBODY.parse::<IpAddr>().unwrap()].slot;
        (slot, edt.delays[&slot])
    };
    assert_eq!(delay(5, 10), (1, Latency::from_millis(10)));
    assert_eq!(delay(15, 10), (1, Latency::from_millis(15)));
    assert_eq!(delay(0, 10), (1, Latency::from_millis(10)));
}

#[test]
fn who_is_not_wanted_any_more_is_let_go_first_and_forgotten_later() {
    let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
    let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    let mut there: BTreeMap<_, _> = [(a, Member { slot: SLOT, since: at(0) })].into();
    let wanted: BTreeMap<_, _> = [(b, SLOT)].into();
    assert_eq!(changes(&there, &wanted, at(10_000)), [(a, Change::Put(RELEASED)), (b, Change::Put(SLOT))]);
    there =
        [(a, Member { slot: RELEASED, since: at(10_000) }), (b, Member { slot: SLOT, since: at(0) })].into();
    assert_eq!(changes(&there, &wanted, at(11_900)), []);
    assert_eq!(changes(&there, &wanted, at(12_000)), [(a, Change::Remove)]);
    let back: BTreeMap<_, _> = [(a, SLOT), (b, SLOT)].into();
    assert_eq!(changes(&there, &back, at(12_000)), [(a, Change::Put(SLOT))]);
}
