//! Rank tables of Ascend clusters (HCCL): which NPU of which server is which rank.
//!
//! The rules are those of the HCCL user guide, "Rank Table Configuration": version 1.0, and 1.2 with super pods; all numbers are strings
//! there, and plain numbers are taken too.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::{FormatError, text_of};

/// A rank table that keeps all rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RankTable {
    /// `1.0` or `1.2`.
    pub version: String,
    /// Servers, in the order of the file.
    pub servers: Vec<Server>,
    /// Super pods (version 1.2), in the order of the file.
    pub super_pods: Vec<SuperPod>,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Server {
    /// Its unique name.
    pub id: String,
    /// Its devices, in the order of the file.
    pub devices: Vec<Device>,
}

/// An NPU, or one die of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Its number in the server: `/dev/davinciN`.
    pub device_id: u32,
    /// Its number in the super pod, if the table tells.
    pub super_device_id: Option<String>,
    /// Address of its network port, if the table tells.
    pub device_ip: Option<IpAddr>,
    /// Its rank.
    pub rank_id: u32,
}

/// Servers whose devices reach each other over HCCS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SuperPod {
    /// Its unique name.
    pub id: String,
    /// Its servers, as indices into [`RankTable::servers`].
    pub servers: Vec<usize>,
}

impl RankTable {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// With the file and the field (or the line, of text that is no JSON), and the rule that it breaks.
    pub fn from_file(path: impl AsRef<Path>) -> Result<RankTable, FormatError> {
        let path = path.as_ref();
        RankTable::from_json(&path.display().to_string(), &text_of(path)?)
    }

    /// Reads and checks the text of a file; `file` names it in errors.
    ///
    /// # Errors
    /// As [`RankTable::from_file`].
    pub fn from_json(file: &str, text: &str) -> Result<RankTable, FormatError> {
        let error = |line, problem| FormatError { file: file.to_owned(), line, problem };
        let value: Value = serde_json::from_str(text).map_err(|e| {
            error(u32::try_from(e.line()).ok(), format!("expected a rank table in JSON, found this: {e}"))
        })?;
        table(&value).map_err(|problem| error(None, problem))
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.servers.iter().map(|server| server.devices.len()).sum()
    }
}

fn table(value: &Value) -> Result<RankTable, String> {
    let Value::Object(_) = value else { return Err(format!("expected an object, found {}", shown(value))) };
    if value.get("group_list").is_some() {
        return Err("group_list: expected the template with server_list; this one is no longer documented".into());
    }
    let status = text(value, "", "status")?;
    if status != "completed" {
        return Err(format!("status: expected \"completed\", found {status:?}: the table is not ready"));
    }
    let version = text(value, "", "version")?;
    if version != "1.0" && version != "1.2" {
        return Err(format!("version: expected \"1.0\" or \"1.2\", found {version:?}"));
    }
    let mut servers: Vec<Server> = Vec::new();
    for (at, entry) in list(value, "", "server_list")?.iter().enumerate() {
        servers.push(server(entry, &format!("server_list[{at}]"))?);
    }
    let count: u32 = number(value, "", "server_count")?;
    if count as usize != servers.len() {
        return Err(format!("server_count: expected {}, the length of server_list, found {count}", servers.len()));
    }
    unique(servers.iter().enumerate().map(|(at, server)| (format!("server_list[{at}].server_id"), &server.id)))?;
    devices_agree(&servers)?;
    let super_pods = if version == "1.2" { super_pods(value, &servers)? } else { Vec::new() };
    Ok(RankTable { version, servers, super_pods })
}

fn server(entry: &Value, path: &str) -> Result<Server, String> {
    let id = text(entry, path, "server_id")?;
    if id.is_empty() || id.len() >= 64 {
        return Err(format!("{path}.server_id: expected a name of 1 to 63 bytes, found {} bytes", id.len()));
    }
    let mut devices = Vec::new();
    for (at, entry) in list(entry, path, "device")?.iter().enumerate() {
        let path = format!("{path}.device[{at}]");
        let told = |key: &str| entry.get(key).map_or(Ok(None), |_| text(entry, &path, key).map(Some));
        let address = told("device_ip")?.filter(|text| !text.is_empty());
        let device_ip = match address {
            None => None,
            Some(address) => Some(
                address
                    .parse()
                    .map_err(|_| format!("{path}.device_ip: expected an IPv4 or IPv6 address, found {address:?}"))?,
            ),
        };
        devices.push(Device {
            device_id: number(entry, &path, "device_id")?,
            super_device_id: told("super_device_id")?.filter(|text| !text.is_empty()),
            device_ip,
            rank_id: number(entry, &path, "rank_id")?,
        });
    }
    if devices.is_empty() {
        return Err(format!("{path}.device: expected at least one device, found none"));
    }
    Ok(Server { id, devices })
}

/// The rules that hold between devices.
fn devices_agree(servers: &[Server]) -> Result<(), String> {
    let all = || {
        let of = |(at, server): (usize, &'_ Server)| -> Vec<(String, Device)> {
            let path = |device| format!("server_list[{at}].device[{device}]");
            server.devices.iter().enumerate().map(|(device, it)| (path(device), it.clone())).collect()
        };
        servers.iter().enumerate().flat_map(of)
    };
    for (at, server) in servers.iter().enumerate() {
        let path = |device| format!("server_list[{at}].device[{device}].device_id");
        unique(server.devices.iter().enumerate().map(|(device, it)| (path(device), it.device_id)))?;
    }
    unique(all().map(|(path, device)| (format!("{path}.rank_id"), device.rank_id)))?;
    unique(all().filter_map(|(path, device)| Some((format!("{path}.device_ip"), device.device_ip?))))?;
    let ranks = all().count();
    if ranks == 0 {
        return Err("server_list: expected at least one server, found none".into());
    }
    if let Some((path, device)) = all().find(|(_, device)| device.rank_id as usize >= ranks) {
        return Err(format!(
            "{path}.rank_id: expected 0 to {} of {ranks} devices, found {}",
            ranks - 1,
            device.rank_id
        ));
    }
    if let Some((path, _)) = all().find(|(_, device)| servers.len() > 1 && device.device_ip.is_none()) {
        return Err(format!(
            "{path}.device_ip: expected an address, which devices of several servers need, found none"
        ));
    }
    for (at, server) in servers.iter().enumerate() {
        let mut ranks: Vec<(u32, usize)> =
            server.devices.iter().enumerate().map(|(device, it)| (it.rank_id, device)).collect();
        ranks.sort_unstable();
        for pair in ranks.windows(2) {
            if let [(before, _), (next, device)] = pair
                && *next != before + 1
            {
                return Err(format!(
                    "server_list[{at}].device[{device}].rank_id: expected {}, since ranks of one server are contiguous, found {next}",
                    before + 1
                ));
            }
        }
    }
    Ok(())
}

/// Every server is in exactly one super pod.
fn super_pods(value: &Value, servers: &[Server]) -> Result<Vec<SuperPod>, String> {
    let index: BTreeMap<&str, usize> =
        servers.iter().enumerate().map(|(at, server)| (server.id.as_str(), at)).collect();
    let mut pods = Vec::new();
    let mut places: Vec<(String, usize)> = Vec::new();
    for (at, entry) in list(value, "", "super_pod_list")?.iter().enumerate() {
        let path = format!("super_pod_list[{at}]");
        let mut inside = Vec::new();
        for (at, entry) in list(entry, &path, "server_list")?.iter().enumerate() {
            let path = format!("{path}.server_list[{at}]");
            let id = text(entry, &path, "server_id")?;
            let Some(server) = index.get(id.as_str()) else {
                return Err(format!("{path}.server_id: expected a server of server_list, found {id:?}"));
            };
            places.push((format!("{path}.server_id"), *server));
            inside.push(*server);
        }
        pods.push(SuperPod { id: text(entry, &path, "super_pod_id")?, servers: inside });
    }
    unique(pods.iter().enumerate().map(|(at, pod)| (format!("super_pod_list[{at}].super_pod_id"), &pod.id)))?;
    unique(places.iter().map(|(path, server)| (path.clone(), *server)))?;
    if let Some(lone) = servers.iter().enumerate().find(|(at, _)| !places.iter().any(|(_, server)| server == at)) {
        return Err(format!("super_pod_list: expected every server, found none with {:?}", lone.1.id));
    }
    Ok(pods)
}

/// An error that names the second of two fields of the same value.
fn unique<T: Ord + Clone + std::fmt::Debug>(values: impl Iterator<Item = (String, T)>) -> Result<(), String> {
    let mut seen: BTreeMap<T, String> = BTreeMap::new();
    for (path, value) in values {
        if let Some(first) = seen.get(&value) {
            return Err(format!("{path}: expected another value than {first} has, found {value:?} again"));
        }
        seen.insert(value, path);
    }
    Ok(())
}

fn name(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn list<'a>(value: &'a Value, path: &str, key: &str) -> Result<&'a [Value], String> {
    match value.get(key) {
        Some(Value::Array(list)) => Ok(list),
        Some(other) => Err(format!("{}: expected a list, found {}", name(path, key), shown(other))),
        None => Err(format!("{}: expected a list, found no such field", name(path, key))),
    }
}

/// A string, or a number as one.
fn text(value: &Value, path: &str, key: &str) -> Result<String, String> {
    match value.get(key) {
        Some(Value::String(text)) => Ok(text.trim().to_owned()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        Some(other) => Err(format!("{}: expected a string, found {}", name(path, key), shown(other))),
        None => Err(format!("{}: expected a string, found no such field", name(path, key))),
    }
}

fn number(value: &Value, path: &str, key: &str) -> Result<u32, String> {
    let text = text(value, path, key)?;
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| digits);
    number.ok_or_else(|| format!("{}: expected a number from 0, found {text:?}", name(path, key)))
}

/// A value, shortened.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        other => other.to_string().chars().take(60).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"status": "completed", "version": "1.2", "server_count": "2", "server_list": [
        {"server_id": "a", "device": [{"device_id": "0", "device_ip": "10.0.0.1", "rank_id": "1"},
                                      {"device_id": "1", "device_ip": "10.0.0.2", "rank_id": "0"}]},
        {"server_id": "b", "device": [{"device_id": "0", "device_ip": "fe80::1", "rank_id": "2"}]}],
        "super_pod_list": [{"super_pod_id": "0", "server_list": [{"server_id": "a"}, {"server_id": "b"}]}]}"#;

    fn problem(text: &str) -> String {
        RankTable::from_json("table.json", text).unwrap_err().to_string()
    }

    #[test]
    fn good_tables() {
        let table = RankTable::from_json("t", GOOD).unwrap();
        assert_eq!((table.ranks(), table.servers.len(), table.super_pods.len()), (3, 2, 1));
        assert_eq!(table.servers[1].devices[0].device_ip, Some("fe80::1".parse().unwrap()));
        let numbers = GOOD.replace(r#""rank_id": "2""#, r#""rank_id": 2"#);
        assert_eq!(RankTable::from_json("t", &numbers).unwrap(), table);
    }

    #[test]
    fn errors_name_the_field() {
        let cases = [
            (r#""completed""#, r#""initializing""#, "status: expected \"completed\""),
            (r#""version": "1.2""#, r#""version": "2.0""#, "version: expected"),
            (r#""version": "1.2", "#, "", "version: expected a string, found no such field"),
            (r#""server_count": "2""#, r#""server_count": "3""#, "server_count: expected 2"),
            (
                r#""server_id": "b", "device""#,
                r#""server_id": "a", "device""#,
                "server_list[1].server_id: expected another value than server_list[0].server_id",
            ),
            (
                r#""rank_id": "2""#,
                r#""rank_id": "1""#,
                "server_list[1].device[0].rank_id: expected another value than server_list[0].device[0].rank_id",
            ),
            (r#""rank_id": "2""#, r#""rank_id": "7""#, "server_list[1].device[0].rank_id: expected 0 to 2"),
            (r#""rank_id": "2""#, r#""rank_id": "-1""#, "server_list[1].device[0].rank_id: expected a number"),
            (r#""rank_id": "2""#, r#""rank_id": "+2""#, "server_list[1].device[0].rank_id: expected a number"),
            (
                r#""rank_id": "2""#,
                r#""rank_id": null"#,
                "server_list[1].device[0].rank_id: expected a string, found null",
            ),
            (r#""device_id": "1""#, r#""device_id": "0""#, "server_list[0].device[1].device_id: expected another"),
            (r#""10.0.0.2""#, r#""10.0.0.1""#, "server_list[0].device[1].device_ip: expected another"),
            (r#""10.0.0.2""#, r#""10.0.0.256""#, "server_list[0].device[1].device_ip: expected an IPv4"),
            (r#""10.0.0.2""#, r#""""#, "server_list[0].device[1].device_ip: expected an address"),
            (r#", {"server_id": "b"}]}]"#, "]}]", "super_pod_list: expected every server, found none with \"b\""),
            (
                r#"{"server_id": "b"}]}]"#,
                r#"{"server_id": "c"}]}]"#,
                "super_pod_list[0].server_list[1].server_id: expected a server",
            ),
            (
                r#"{"server_id": "b"}]}]"#,
                r#"{"server_id": "a"}]}]"#,
                "super_pod_list[0].server_list[1].server_id: expected another",
            ),
            (r#""super_pod_list""#, r#""x""#, "super_pod_list: expected a list"),
        ];
        for (from, to, expected) in cases {
            assert_ne!(GOOD.replace(from, to), GOOD, "{from}");
            let own = problem(&GOOD.replace(from, to));
            assert!(own.contains(expected), "{from} -> {to}: {own}");
            assert!(own.starts_with("table.json: "), "{own}");
        }
        assert!(problem("{\n\"status\": \"completed\",\n}").starts_with("table.json:3: expected a rank table in JSON"));
        assert!(problem("[]").contains("expected an object, found a list"));
        assert!(problem(&"[".repeat(100_000)).contains("expected a rank table"));
    }

    #[test]
    fn ranks_of_one_server_are_contiguous() {
        let text =
            GOOD.replace(r#""rank_id": "0""#, r#""rank_id": "x""#).replace(r#""rank_id": "2""#, r#""rank_id": "0""#);
        let text =
            text.replace(r#""rank_id": "x""#, r#""rank_id": "2""#).replace(r#""rank_id": "0""#, r#""rank_id": "y""#);
        let text =
            text.replace(r#""rank_id": "1""#, r#""rank_id": "0""#).replace(r#""rank_id": "y""#, r#""rank_id": "1""#);
        assert!(problem(&text).contains(
            "server_list[0].device[1].rank_id: expected 1, since ranks of one server are contiguous, found 2"
        ));
    }
}
