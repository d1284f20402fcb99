//! Clients that ask and do not read, beside a process that has locks to renew.

use tokio::sync::watch;

use super::*;
use crate::{
    lock::Locks,
    node::{Node, Op, memory::MemoryNode},
};

/// Fewer than the server takes connections at one time.
const CROWD: usize = 100;

/// Renewals that come while the crowd is there.
const RENEWALS: usize = 3;

#[tokio::test]
async fn a_crowd_that_reads_no_metrics_delays_no_renewal() {
    let node = MemoryNode::new("n1", Clock::system());
    let (renewed, mut renewals) = watch::channel(0);
    node.observe(move |executed| {
        let ops = executed.call.ops.iter();
        let extended = ops.filter(|op| matches!(op, Op::Extend { .. })).count();
        renewed.send_modify(|all| *all += extended);
    });
    let locks = Locks::over(vec![Arc::new(node) as Arc<dyn Node>]);
    let locks = locks.start().unwrap();
    let held = locks.lock_key("job/report").ttl(Duration::from_secs(2));
    let lease = held.acquire().await.unwrap();
    // Megabytes of text: no buffer of a connection takes it.
    let metrics = Metrics::new("1.2.3");
    for n in 0..20_000 {
        metrics.declare_node(
            &format!("a node with a long name, of which there are many: {n}"),
            true,
        );
    }
    let server = serving(Fake {
        fleet: fleet(),
        metrics: Some(metrics),
        ..Fake::default()
    })
    .await;
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        let mut client = TcpStream::connect(server.address).await.unwrap();
        let asks = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        client.write_all(asks).await.unwrap();
        crowd.push(client);
    }
    for client in &crowd {
        client.readable().await.unwrap();
    }
    // All of them are being answered, and none reads.
    let before = *renewals.borrow_and_update();
    let enough = renewals.wait_for(|all| *all >= before + RENEWALS);
    let clock = Clock::system();
    let enough = clock.timeout(Duration::from_secs(60), enough);
    assert!(enough.await.is_ok_and(|told| told.is_ok()), "no renewals");
    assert!(lease.view().is_held());
    // Others are answered meanwhile, also one who asks for the same and reads.
    for path in ["/livez", "/readyz", "/", "/jobs/report", "/api/v1/jobs"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
    let metrics = server.get("/metrics").await;
    assert_eq!(metrics.status, 200);
    assert!(metrics.body.len() > 2_000_000, "{}", metrics.body.len());
    assert!(lease.view().is_held());
    drop(crowd);
}
