//! Fences in Redis: a later holder's token keeps the earlier one out.

use std::sync::Arc;

use deadpool_redis::redis::{self, aio::MultiplexedConnection};
use watchkeeper_lock::{
    fence::{self, Fence, FenceError, Stale},
    node::Token,
};

use crate::{
    bench,
    holders::{self, ACCOUNT, Holders},
    server::RedisServer,
};

const FENCE: &str = "{account}:fence";
const BALANCE: &str = "{account}:balance";

/// A server with locks and an account, and a client of the account.
struct Bank {
    server: RedisServer,
    connection: MultiplexedConnection,
}

impl Bank {
    async fn open() -> Self {
        let server = RedisServer::start();
        let client = redis::Client::open(server.url()).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        Self { server, connection }
    }

    async fn frozen(&self) -> Holders {
        holders::after_expiry(Arc::new(bench::client(&self.server))).await
    }

    /// Runs a script of the account under a token, as a user does.
    async fn run(&mut self, script: &str, token: Token, amount: i64) -> Result<(), FenceError> {
        let fence = Fence::new(ACCOUNT, token)?;
        let done: redis::RedisResult<redis::Value> = redis::Script::new(script)
            .key(FENCE)
            .key(BALANCE)
            .arg(fence.token())
            .arg(amount)
            .invoke_async(&mut self.connection)
            .await;
        match done {
            Ok(_) => Ok(()),
            Err(e) if e.code() == Some(fence::redis::STALE) => Err(fence.stale().into()),
            Err(e) => panic!("{e}"),
        }
    }

    async fn set(&mut self, token: Token, balance: i64) -> Result<(), FenceError> {
        self.run(fence::redis::SET, token, balance).await
    }

    fn get(&self, key: &str) -> String {
        let answer = self.server.raw(&["GET", key]);
        answer.lines().nth(1).unwrap_or_default().to_owned()
    }

    fn eval(&self, token: &str) -> String {
        self.server
            .raw(&["EVAL", fence::redis::SET, "2", FENCE, BALANCE, token, "0"])
    }
}

fn assert_stale(refused: &FenceError, by: Token) {
    assert!(
        matches!(refused, FenceError::Stale(Stale { token, .. }) if *token == by),
        "{refused:?}"
    );
}

async fn refuses_the_stale(mut bank: Bank, holders: Holders) {
    let present = holders.present.token();
    bank.set(holders.stale, 90).await.unwrap();
    bank.set(present, 80).await.unwrap();
    let refused = bank.set(holders.stale, 0).await.unwrap_err();
    assert_stale(&refused, holders.stale);
    assert_eq!(bank.get(BALANCE), "80");
    bank.set(present, 70).await.unwrap();
    assert_eq!(bank.get(BALANCE), "70");
    assert_eq!(bank.get(FENCE), present.to_string());
    holders.present.release().await;
}

pub(crate) fn a_stale_holder_is_refused() {
    bench::run(async {
        let bank = Bank::open().await;
        let holders = bank.frozen().await;
        refuses_the_stale(bank, holders).await;
    });
}

pub(crate) fn a_holder_that_was_stale_by_its_release_is_refused() {
    bench::run(async {
        let bank = Bank::open().await;
        let node = Arc::new(bench::client(&bank.server));
        let holders = holders::after_release(node).await;
        refuses_the_stale(bank, holders).await;
    });
}

pub(crate) fn a_stale_holder_is_refused_by_a_script_of_the_user() {
    bench::run(async {
        let mut bank = Bank::open().await;
        let holders = bank.frozen().await;
        let pay_in = format!(
            "{} local held = 1 return redis.call('INCRBY', KEYS[2], ARGV[2]) + held",
            fence::redis::CHECK
        );
        bank.run(&pay_in, holders.present.token(), 10)
            .await
            .unwrap();
        let refused = bank.run(&pay_in, holders.stale, 10).await.unwrap_err();
        assert_stale(&refused, holders.stale);
        bank.run(&pay_in, holders.present.token(), 10)
            .await
            .unwrap();
        assert_eq!(bank.get(BALANCE), "20");
    });
}

pub(crate) fn without_the_fence_the_stale_write_goes_through() {
    bench::run(async {
        let mut bank = Bank::open().await;
        let holders = bank.frozen().await;
        bank.set(holders.present.token(), 80).await.unwrap();
        bank.server.raw(&["SET", BALANCE, "0"]);
        assert_eq!(bank.get(BALANCE), "0");
    });
}

/// What the documentation says of clients without scripts.
pub(crate) fn a_watched_fence_stops_a_transaction_that_a_later_holder_overtook() {
    bench::run(async {
        let mut bank = Bank::open().await;
        let holders = bank.frozen().await;
        bank.set(holders.stale, 90).await.unwrap();
        let client = redis::Client::open(bank.server.url()).unwrap();
        let mut late = client.get_multiplexed_async_connection().await.unwrap();
        let () = redis::cmd("WATCH")
            .arg(FENCE)
            .query_async(&mut late)
            .await
            .unwrap();
        let seen: u64 = redis::cmd("GET")
            .arg(FENCE)
            .query_async(&mut late)
            .await
            .unwrap();
        assert_eq!(Token(seen), holders.stale);
        bank.set(holders.present.token(), 80).await.unwrap();
        let done: Option<redis::Value> = redis::pipe()
            .atomic()
            .set(FENCE, holders.stale.0)
            .set(BALANCE, 0)
            .query_async(&mut late)
            .await
            .unwrap();
        assert_eq!((done, bank.get(BALANCE)), (None, "80".to_owned()));
        assert_eq!(bank.get(FENCE), holders.present.token().to_string());
    });
}

pub(crate) fn tokens_are_compared_exactly_and_kept_as_they_came() {
    bench::run(async {
        let mut bank = Bank::open().await;
        let largest = (1 << 53) - 1;
        for token in [9, 10, largest - 2, largest - 1] {
            bank.set(Token(token), 1).await.unwrap();
            assert_eq!(bank.get(FENCE), token.to_string());
        }
        let refused = bank.set(Token(largest - 2), 0).await.unwrap_err();
        assert_stale(&refused, Token(largest - 2));
        bank.set(Token(largest), 2).await.unwrap();
        assert_eq!(bank.get(FENCE), "9007199254740991");
    });
}

pub(crate) fn only_a_token_passes() {
    bench::run(async {
        let bank = Bank::open().await;
        for token in [
            "0",
            "",
            "-1",
            "+5",
            "05",
            "1.5",
            "1e3",
            "0x10",
            "nan",
            "5 ",
            "9007199254740992",
            "99999999999999999999",
        ] {
            let answer = bank.eval(token);
            assert!(answer.starts_with("-NOTOKEN "), "{token:?}: {answer}");
        }
        let (fence, balance) = (bank.get(FENCE), bank.get(BALANCE));
        assert_eq!((fence, balance), (String::new(), String::new()));
    });
}

pub(crate) fn a_key_that_is_no_fence_refuses_everybody() {
    bench::run(async {
        let bank = Bank::open().await;
        bank.server.raw(&["SET", FENCE, "mine"]);
        let answer = bank.eval("5");
        assert!(answer.starts_with("-NOFENCE "), "{answer}");
        bank.server.raw(&["DEL", FENCE]);
        bank.server.raw(&["HSET", FENCE, "a", "b"]);
        let answer = bank.eval("5");
        assert!(answer.starts_with("-WRONGTYPE "), "{answer}");
        assert_eq!(bank.get(BALANCE), "");
    });
}
