//! Tests of `STARTTLS` on both sides: what may be said without TLS, and what is forgotten with it.

use super::tests::{export, greeting, name, option_bytes, replies, reply_bytes};
use super::*;
use crate::transmission::MessageStyle;

const FLAGS: [u8; 4] = [0, 0, 0, 3];

/// A server behind its greeting, to which the client has sent its flags.
fn server(tls: TlsMode) -> ServerHandshake {
    let mut server = ServerHandshake::with_tls(tls);
    server.sent(server.output().len());
    assert_eq!(server.receive(&FLAGS), Ok((4, None)));
    server
}

/// The kinds of replies that options get.
fn asked(server: &mut ServerHandshake, options: &[(u32, &[u8])]) -> Vec<u32> {
    let bytes: Vec<u8> = options.iter().flat_map(|(option, data)| option_bytes(*option, data)).collect();
    assert_eq!(server.receive(&bytes).unwrap(), (bytes.len(), None));
    said(server)
}

fn said(server: &mut ServerHandshake) -> Vec<u32> {
    let sent = [&greeting(3), server.output()].concat();
    let kinds = replies(&sent).into_iter().map(|(_, kind, _)| kind).collect();
    server.sent(server.output().len());
    kinds
}

fn go() -> Vec<u8> {
    option_bytes(option::GO, &[0, 0, 0, 1, b'a', 0, 0])
}

#[test]
fn where_tls_is_required_nothing_is_said_without_it() {
    let mut server = server(TlsMode::Required);
    let options: &[(u32, &[u8])] = &[
        (option::LIST, b""),
        (option::INFO, b"\0\0\0\x01a\0\0"),
        (option::GO, b"\0\0\0\x01a\0\0"),
        (option::STRUCTURED_REPLY, b""),
        (77, b"what"),
    ];
    assert_eq!(server.refused_without_tls(), 0);
    assert_eq!(asked(&mut server, options), [reply::ERR_TLS_REQD; 5]);
    assert_eq!(server.refused_without_tls(), 5);
    assert_eq!(asked(&mut server, &[(option::STARTTLS, b"data")]), [reply::ERR_INVALID]);
    let by_name = option_bytes(option::EXPORT_NAME, b"a");
    assert_eq!(server.receive(&by_name), Err(ServerError::Insecure));
    let mut server = self::server(TlsMode::Required);
    let goodbye = option_bytes(option::ABORT, b"");
    assert_eq!(server.receive(&goodbye), Ok((16, Some(ServerEvent::Aborted))));
}

#[test]
fn what_was_chosen_in_plain_text_is_forgotten() {
    for chosen in [option::STRUCTURED_REPLY, option::EXTENDED_HEADERS] {
        forgets(chosen);
    }
}

fn forgets(chosen: u32) {
    let mut server = server(TlsMode::Offered);
    assert_eq!(asked(&mut server, &[(chosen, b"")]), [reply::ACK]);
    let context = b"\0\0\0\x01a\0\0\0\x01\0\0\0\x0fbase:allocation";
    let select = option_bytes(option::SET_META_CONTEXT, context);
    assert!(matches!(
        server.receive(&select).unwrap().1,
        Some(ServerEvent::ExportWanted { open: false, .. })
    ));
    server.answer(ExportAnswer::Found(export(512)));
    assert_eq!(said(&mut server), [reply::META_CONTEXT, reply::ACK]);
    let start = option_bytes(option::STARTTLS, b"");
    assert_eq!(server.receive(&start), Ok((16, Some(ServerEvent::TlsWanted))));
    assert_eq!(said(&mut server), [reply::ACK]);
    server.secured();
    assert_eq!(asked(&mut server, &[(option::STARTTLS, b"")]), [reply::ERR_INVALID]);
    let (_, event) = server.receive(&go()).unwrap();
    assert!(matches!(event, Some(ServerEvent::ExportWanted { open: true, .. })));
    server.answer(ExportAnswer::Found(export(512)));
    let (_, event) = server.receive(&[]).unwrap();
    let Some(ServerEvent::Opened(opened)) = event else { panic!("{event:?}") };
    assert_eq!((opened.terms.style, opened.terms.allocation), (MessageStyle::Simple, None));
}

#[test]
fn plain_text_behind_starttls_is_never_taken() {
    for cut in 0..=16 {
        let mut server = server(TlsMode::Offered);
        let start = option_bytes(option::STARTTLS, b"");
        // However the option arrives, what arrives with its last byte is an attack.
        assert_eq!(server.receive(&start[..cut.min(15)]).unwrap().1, None);
        let rest = [&start[cut.min(15)..], &go()[..1]].concat();
        assert_eq!(server.receive(&rest), Err(ServerError::PlainTextBehindStartTls), "{cut}");
        assert_eq!(server.receive(&[]), Err(ServerError::PlainTextBehindStartTls));
    }
}

#[test]
fn a_server_waits_for_tls_before_it_takes_anything() {
    let mut server = server(TlsMode::Required);
    let start = option_bytes(option::STARTTLS, b"");
    assert_eq!(server.receive(&start), Ok((16, Some(ServerEvent::TlsWanted))));
    for _ in 0..3 {
        assert_eq!(server.receive(&go()), Ok((0, Some(ServerEvent::TlsWanted))));
    }
    server.secured();
    let (_, event) = server.receive(&go()).unwrap();
    assert!(matches!(event, Some(ServerEvent::ExportWanted { .. })));
}

#[test]
fn without_tls_the_option_is_unknown() {
    assert_eq!(asked(&mut server(TlsMode::Off), &[(option::STARTTLS, b"")]), [reply::ERR_UNSUP]);
}

#[test]
fn a_client_that_may_not_use_an_export_hears_only_that() {
    for (answer, kind) in
        [(ExportAnswer::Forbidden, reply::ERR_POLICY), (ExportAnswer::TlsRequired, reply::ERR_TLS_REQD)]
    {
        let mut server = server(TlsMode::Offered);
        server.receive(&go()).unwrap();
        server.answer(answer.clone());
        assert_eq!(said(&mut server), [kind]);
        server.receive(&option_bytes(option::EXPORT_NAME, b"a")).unwrap();
        server.answer(answer);
        assert_eq!(server.receive(&[]), Err(ServerError::Refused(name("a"))));
        assert!(server.output().is_empty());
    }
}

/// A client that wants TLS, behind the greeting of a server.
fn client(flags: u16) -> (ClientHandshake, Result<(usize, Option<ClientEvent>), ClientError>) {
    let mut client = ClientHandshake::open(name("a"), MessageStyle::Structured).by_tls();
    let received = client.receive(&greeting(flags));
    (client, received)
}

#[test]
fn a_client_asks_for_tls_first_and_for_nothing_without_it() {
    let (mut client, received) = client(3);
    assert_eq!(received, Ok((18, None)));
    assert_eq!(client.output()[4..], option_bytes(option::STARTTLS, b""));
    client.sent(client.output().len());
    // A call without a request starts nothing.
    client.secured();
    assert!(client.output().is_empty());
    let ready = reply_bytes(option::STARTTLS, reply::ACK, b"");
    assert_eq!(client.receive(&ready), Ok((20, Some(ClientEvent::TlsReady))));
    assert!(client.output().is_empty());
    client.secured();
    assert_eq!(client.output(), option_bytes(option::STRUCTURED_REPLY, b""));

    for kind in [reply::ERR_UNSUP, reply::ERR_POLICY, reply::ERR_PLATFORM] {
        let (mut client, _) = self::client(3);
        client.sent(client.output().len());
        let refused = client.receive(&reply_bytes(option::STARTTLS, kind, b"no"));
        assert!(matches!(refused, Err(ClientError::NoTls { .. })), "{refused:?}");
        assert_eq!(client.output(), option_bytes(option::ABORT, b""));
    }
    assert_eq!(self::client(2).1, Err(ClientError::TooOldForTls));
}

#[test]
fn a_client_never_takes_plain_text_for_what_comes_by_tls() {
    let (mut client, _) = client(3);
    let forged = reply_bytes(option::STRUCTURED_REPLY, reply::ACK, b"");
    let bytes = [reply_bytes(option::STARTTLS, reply::ACK, b""), forged].concat();
    assert_eq!(client.receive(&bytes), Err(ClientError::PlainTextBehindStartTls));
    client.secured();
    assert_eq!(client.receive(&[]), Err(ClientError::PlainTextBehindStartTls));
}
