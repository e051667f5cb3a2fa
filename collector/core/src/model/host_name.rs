//! Names of hosts, with and without a domain.

use std::net::IpAddr;

/// The name of a node without the domain, and without the boot id that a merged report may have after the name. An
/// address has no domain, so it stays whole.
pub fn short(name: &str) -> &str {
    let host = name.split(' ').next().unwrap_or_default();
    if host.parse::<IpAddr>().is_ok() { host } else { host.split('.').next().unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_name_has_no_domain_and_no_boot_id_and_an_address_is_whole() {
        let names = ["n1", "n1.example.org", "n1 (boot a.b)", "10.0.0.1", "10.0.0.1 (boot a)", "fe80::1"];
        assert_eq!(names.map(short), ["n1", "n1", "n1", "10.0.0.1", "10.0.0.1", "fe80::1"]);
    }
}
