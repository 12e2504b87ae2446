//! The bench of calls on threads: every peer carries out every call.

use std::sync::Mutex;

use shootdown_callbench::{Peer, Plan};
use shootdown_hosted::{Config, Machine, calls};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A number of a row.
fn field(row: &str, name: &str) -> u64 {
    let (_, rest) = row.split_once(&format!("\"{name}\":")).expect(name);
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).expect(name)
}

#[test]
fn every_peer_runs_every_function_once_on_every_target() {
    let machine = Box::leak(Box::new(Machine::<4>::start(&Config::new(4)).unwrap()));
    let plan = Plan::parse("selected,initiators=1:2:all,targets=1:2:3,ns=0,calls=40,rounds=2");
    let verdict = calls::measure(machine, plan.unwrap(), |line| {
        LINES.lock().unwrap().push(line.to_string());
    });
    let lines = LINES.lock().unwrap();
    let rows: Vec<&String> = lines
        .iter()
        .filter(|line| line.starts_with("@row"))
        .collect();
    assert_eq!(verdict.wrong, 0);
    assert_eq!(verdict.rows, rows.len());
    for peer in Peer::ON_PROCESSORS {
        let name = format!("\"peer\":\"{}\"", peer.name());
        let own: Vec<_> = rows.iter().filter(|row| row.contains(&name)).collect();
        assert_eq!(own.len() * Peer::ON_PROCESSORS.len(), rows.len(), "{name}");
        for row in own {
            let due = field(row, "calls") * field(row, "targets");
            assert_eq!(field(row, "calls"), 80 * field(row, "initiators"), "{row}");
            assert_eq!(field(row, "runs"), due, "{row}");
            assert!(
                field(row, "ipis") <= due && field(row, "entries") <= field(row, "ipis"),
                "{row}"
            );
        }
    }
}
