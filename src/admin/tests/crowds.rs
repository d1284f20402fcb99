//! Clients that ask and do not read, beside a process that has locks to renew.

use futures_util::future::{join, join_all};
use tokio::sync::watch;

use super::*;
use crate::{
    lease::Lease,
    lock::Locks,
    node::{Node, Op, memory::MemoryNode},
};

/// Fewer than the server takes connections at one time.
const CROWD: usize = 100;

/// Renewals that come while the crowd is there.
const RENEWALS: usize = 3;

/// A lock that is renewed every third of two seconds, as often as the receiver says.
async fn a_lock_that_is_renewed() -> (Lease, watch::Receiver<usize>) {
    let node = MemoryNode::new("n1", Clock::system());
    let (renewed, renewals) = watch::channel(0);
    node.observe(move |executed| {
        let ops = executed.call.ops.iter();
        let extended = ops.filter(|op| matches!(op, Op::Extend { .. })).count();
        renewed.send_modify(|all| *all += extended);
    });
    let locks = Locks::over(vec![Arc::new(node) as Arc<dyn Node>]);
    let locks = locks.start().unwrap();
    let held = locks.lock_key("job/report").ttl(Duration::from_secs(2));
    (held.acquire().await.unwrap(), renewals)
}

/// Waits for further renewals.
async fn renewed_again(renewals: &mut watch::Receiver<usize>) {
    let before = *renewals.borrow_and_update();
    let enough = renewals.wait_for(|all| *all >= before + RENEWALS);
    let clock = Clock::system();
    let enough = clock.timeout(Duration::from_secs(60), enough);
    assert!(enough.await.is_ok_and(|told| told.is_ok()), "no renewals");
}

#[tokio::test]
async fn a_crowd_that_reads_no_metrics_delays_no_renewal() {
    let (lease, mut renewals) = a_lock_that_is_renewed().await;
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
    renewed_again(&mut renewals).await;
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

/// Clients that ask for one page after the other, of a thousand jobs, beside those that follow it and read nothing.
#[tokio::test]
async fn a_flood_of_requests_for_pages_delays_no_renewal() {
    const FLOOD: usize = 40;
    let (lease, mut renewals) = a_lock_that_is_renewed().await;
    let jobs = (0..1_000).map(|n| JobStatus {
        name: format!("job-{n:04}"),
        ..JobStatus::default()
    });
    let server = serving(Fake {
        fleet: FleetStatus {
            jobs: jobs.collect(),
            ..fleet()
        },
        ..Fake::default()
    })
    .await;
    let mut followers = Vec::new();
    for _ in 0..10 {
        let client = streams::follow(&server, "/events?path=/", &said()).await;
        followers.push(client);
    }
    let (all_done, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let flood = (0..FLOOD).map(async |n| {
        let mut pages = ["/", "/runs", "/replicas", "/api/v1/jobs"]
            .iter()
            .cycle()
            .skip(n);
        while !is_over.load(Ordering::Relaxed) {
            let page = pages.next().unwrap();
            // Too many at one time are told to come again.
            let status = server.get(page).await.status;
            assert!([200, 503].contains(&status), "{page}: {status}");
            all_done.fetch_add(1, Ordering::Relaxed);
        }
    });
    let flood = join_all(flood);
    let watching = async {
        for _ in 0..2 {
            renewed_again(&mut renewals).await;
            assert!(lease.view().is_held());
        }
        is_over.store(true, Ordering::Relaxed);
    };
    // Polled first: the flood leaves nothing of the budget of a task.
    join(watching, flood).await;
    let pages = all_done.load(Ordering::Relaxed);
    assert!(pages >= FLOOD, "{pages} were answered");
    assert!(lease.view().is_held());
    drop(followers);
}
