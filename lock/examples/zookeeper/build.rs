//! Whether the tests have a server: a test that is ignored is so when it is built.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(zookeeper)");
    println!("cargo::rerun-if-env-changed=WATCHKEEPER_ZOOKEEPER");
    if std::env::var_os("WATCHKEEPER_ZOOKEEPER").is_some() {
        println!("cargo::rustc-cfg=zookeeper");
    }
}
