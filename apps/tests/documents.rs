//! The commands of README.md and docs/, run as they stand there.
//!
//! What is in a fenced block of `sh` runs here. `cargo xtask` runs in CI, so that it has to stand in `.ci/run`. Pages of the guide that
//! make a package of the reader's own are done as a whole by `tests/tests/guide.rs`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pollux_tests::netns::{Namespace, join, must};
use pollux_tests::program::{Finished, Running, with_default_signals};
use pollux_tests::require::{Need, require};

const LIMIT: Duration = Duration::from_secs(30);

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

fn documents() -> Vec<(String, String)> {
    let mut paths = vec![top().join("README.md")];
    for folder in ["docs", "docs/guide/src"] {
        let entries = std::fs::read_dir(top().join(folder)).expect("a folder of documents");
        let files = entries.map(|entry| entry.expect("an entry").path());
        paths.extend(files.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    paths.sort();
    paths.iter().map(|path| (path.display().to_string(), read(path))).collect()
}

/// The lines of each fenced block of `sh`, without comments.
fn blocks(text: &str) -> Vec<Vec<&str>> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line == "```sh" {
            let block = lines.by_ref().take_while(|line| *line != "```");
            let commands = block.map(|line| line.split(" # ").next().unwrap_or(line).trim());
            blocks.push(commands.filter(|line| !line.is_empty()).collect());
        }
    }
    blocks
}

/// Whether a page has files of a package that its reader makes: a line above their blocks names each.
fn makes_a_package(page: &str) -> bool {
    page.lines().any(|line| line.starts_with("**`"))
}

/// The name by which a link finds a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|at| at.is_alphanumeric() || matches!(at, ' ' | '-' | '_'));
    kept.map(|at| if at == ' ' { '-' } else { at }).collect()
}

/// How a line is run here.
enum Way<'a> {
    /// A program of ours, its arguments, and whether it is run by root.
    Program(&'a str, Vec<&'a str>, bool),
    /// A program that is not ours, on the device model, with these arguments of `mlx5-run`.
    OnModel(Vec<&'a str>),
    /// Says what this machine lacks: nothing, or something.
    Doctor,
    /// Cargo builds these packages, or tests: as was done for this test to run.
    Cargo(Vec<&'a str>),
}

fn way(line: &str) -> Way<'_> {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let root = words[0] == "sudo";
    if root {
        words.remove(0);
    }
    if words[0] == "target/release/mlx5-run" {
        return Way::OnModel(words[1..].to_vec());
    }
    if words == ["target/release/doctor"] {
        return Way::Doctor;
    }
    if let Some(program) = words[0].strip_prefix("target/release/") {
        return Way::Program(program, words[1..].to_vec(), root);
    }
    match words[..] {
        ["cargo", "run", "--release", "--bin", program] => Way::Program(program, Vec::new(), root),
        ["cargo", "test", "--workspace"] => Way::Cargo(Vec::new()),
        ["cargo", "build", "--release", ref packages @ ..] => {
            Way::Cargo(packages.iter().copied().filter(|word| *word != "--package").collect())
        }
        _ => panic!("no way to run this here: {line}"),
    }
}

fn command(program: &str, args: &[String]) -> Command {
    let path = Path::new(env!("CARGO_BIN_EXE_l2fwd")).with_file_name(program);
    assert!(path.exists(), "{program} is no program of ours");
    let mut command = Command::new(path);
    command.args(args).current_dir(top());
    command
}

fn succeeded(end: &Finished, line: &str) {
    assert!(end.status.success(), "{line}: {}: {}\n{}", end.status, end.stdout, end.stderr.join("\n"));
}

/// A program that ends by itself, or that Ctrl-C ends.
fn alone(line: &str, program: &str, args: &[&str]) {
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let mut running = Running::start(from_default_signals(&command(program, &args)));
    let ends = line.contains("--duration");
    if !ends {
        running.wait_for("forwarding");
        std::thread::sleep(Duration::from_secs(2));
    }
    let end = if ends { running.finish(LIMIT) } else { running.interrupt() };
    succeeded(&end, line);
    let forwarded = if line.contains("--json") {
        end.report()["ports"][0]["tx_packets"].as_u64()
    } else {
        // The last table: received, its rate, sent.
        let total = end.stdout.lines().rfind(|line| line.starts_with("total"));
        total.and_then(|line| line.split_whitespace().nth(3)?.replace(',', "").parse().ok())
    };
    assert!(forwarded > Some(0), "{line}: {}", end.stdout);
}

/// The same command in the folder that it is meant for.
fn from_default_signals(command: &Command) -> Command {
    let mut fresh = with_default_signals(command);
    fresh.current_dir(top());
    fresh
}

/// A program that forwards, and captures of it.
fn captured(lines: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let start = |line: &str| {
        let line = line.replace("/tmp/", &format!("{}/", folder.path().display()));
        // Words, of which those in quotes are one.
        let words = line.split('"').enumerate().flat_map(|(number, part)| match number % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
            _ => vec![part.to_owned()],
        });
        let words: Vec<String> = words.collect();
        let program = words[0].strip_prefix("target/release/").expect("a program of ours");
        let mut command = command(program, &words[1..]);
        command.env("RUNTIME_DIRECTORY", folder.path());
        Running::start(from_default_signals(&command))
    };
    let mut program = start(lines[0]);
    program.wait_for("forwarding");
    for line in &lines[1..] {
        let end = start(line).finish(LIMIT);
        succeeded(&end, line);
        let counted = end.stderr.iter().find_map(|line| line.strip_prefix("Packets captured: "));
        assert!(counted.is_some_and(|count| count != "0"), "{line}: {}", end.stderr.join("\n"));
    }
    succeeded(&program.interrupt(), lines[0]);
}

/// Two ends on a wire between processes: the first waits for the second.
fn pair(lines: [&str; 2], ends: [(&str, Vec<&str>); 2]) {
    let folder = tempfile::tempdir().expect("a folder");
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = free.expect("a free port").port().to_string();
    let [mut server, client] = ends.map(|(program, args)| {
        let place = |arg: &str| arg.replace("/tmp/", &format!("{}/", folder.path().display()));
        let mut args: Vec<String> = args.into_iter().map(place).collect();
        // Other tests have the usual TCP port; of udaddy there is none, and `-p` is something else.
        if !program.starts_with("raw_ethernet") && program != "udaddy" {
            let options = args.iter().position(|arg| arg == "--").expect("options of the program") + 1;
            args.splice(options..options, ["-p".to_owned(), port.clone()]);
        }
        from_default_signals(&command(program, &args))
    });
    let waits = [
        ("raw_ethernet", "#bytes"),
        ("pingpong", "local address"),
        ("rping", "listening on"),
        ("riostream", "listening on"),
        ("rstream", "listening on"),
        ("ucmatose", "listening on"),
        ("udaddy", "listening on"),
        ("udpong", "listening on"),
        ("cmtime", "listening on"),
        ("rdma_server", "listening on"),
        ("", "Waiting for client"),
    ];
    let (_, word) = waits.iter().find(|(kind, _)| lines[0].contains(kind)).expect("the last is any");
    if *word != "listening on" {
        // With it the server tells on standard error when it waits.
        server.arg("--json");
    }
    let mut server = Running::start(server);
    server.wait_for(word);
    let client = Running::start(client).finish(LIMIT);
    succeeded(&client, lines[1]);
    // Of some the server goes on for other clients.
    let server = if lines[0].contains("udpong") { server.interrupt() } else { server.finish(LIMIT) };
    succeeded(&server, lines[0]);
}

/// A client on the device model, and the server that it reaches; without a server, a program that ends by itself.
fn on_model(server: Option<&[&str]>, client: &[&str]) {
    if !require(&[Need::RdmaCore, Need::RdmaCm]) {
        return;
    }
    let links = tempfile::tempdir().expect("a folder");
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = free.expect("a free port").port().to_string();
    let start = |args: &[&str]| {
        let mut args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        if server.is_some() {
            // Before the server's name, which is last.
            let end = args.len() - usize::from(args.last().is_some_and(|last| last == LOCAL));
            args.splice(end..end, ["-p".to_owned(), port.clone()]);
        }
        let mut command = command("mlx5-run", &args);
        command.env("XDG_RUNTIME_DIR", links.path());
        Running::start(from_default_signals(&command))
    };
    let mut running = server.map(|args| (args, start(args)));
    // What these programs say comes late through a pipe: a client that comes before its server listens is refused, and tries again.
    let deadline = std::time::Instant::now() + LIMIT;
    loop {
        let end = start(client).finish(LIMIT);
        let Some((args, server)) = &mut running else {
            succeeded(&end, &client.join(" "));
            return;
        };
        if end.status.success() {
            break;
        }
        let has_ended = server.has_ended();
        if has_ended || std::time::Instant::now() > deadline {
            let (line, server) = (args.join(" "), running.map(|(_, server)| server));
            let server =
                server.map(|server| if has_ended { server.finish(LIMIT) } else { server.interrupt() });
            // Of a client without a server, what the server said is the reason.
            panic!("{}: {end:?}\n{line}: {server:?}", client.join(" "));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    if let Some((args, server)) = running {
        succeeded(&server.finish(LIMIT), &args.join(" "));
    }
}

/// Where clients of documents find their servers, other than by RDMA.
const LOCAL: &str = "127.0.0.1";

/// Whether a line is one end of two on the device model, and not the first.
fn is_client_on_model(line: &str) -> bool {
    line.contains("mlx5-run") && (line.ends_with(LOCAL) || line.contains(" rping -c "))
}

/// Between two hosts, whose names for their interfaces are the document's; a router's are on two networks.
fn between_hosts(line: &str, program: &str, args: &[&str]) {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let routes = program == "l3fwd";
    let [a, b, middle] = ["a", "b", "m"].map(Namespace::new);
    for (number, host, outer) in [(0, &a, "veth0"), (1, &b, "veth1")] {
        join(host, "eth0", &middle, outer);
        middle.ip(&["link", "set", outer, "up"]);
        let net = if routes { number } else { 0 };
        host.ip(&["address", "add", &format!("10.78.{net}.{}/24", number + 1), "dev", "eth0"]);
        host.ip(&["link", "set", "eth0", "up"]);
        if routes {
            // As the document says.
            let [own, gateway] = ["00", "aa"].map(|kind| format!("02:00:00:00:{kind}:0{number}"));
            let gateway_ip = format!("10.78.{net}.254");
            middle.ip(&["link", "set", outer, "address", &gateway]);
            host.ip(&["link", "set", "eth0", "address", &own]);
            let known = ["lladdr", &gateway, "dev", "eth0", "nud", "permanent"];
            host.ip(&[&["neighbour", "replace", &gateway_ip], &known[..]].concat());
            host.ip(&["route", "add", "default", "via", &gateway_ip]);
        }
    }
    let far = if routes { "10.78.1.2" } else { "10.78.0.2" };
    let path = Path::new(env!("CARGO_BIN_EXE_l2fwd")).with_file_name(program);
    let path = path.to_str().expect("a path in UTF-8");
    let mut running = Running::start(from_default_signals(&middle.command(path, args)));
    running.wait_for("forwarding");
    must(&mut a.command("ping", &["-c", "20", "-i", "0.01", "-w", "10", far]));
    succeeded(&running.interrupt(), line);
}

#[test]
fn each_command_runs_as_it_stands() {
    let mut ran = 0;
    for (document, text) in documents().into_iter().filter(|(_, text)| !makes_a_package(text)) {
        for block in blocks(&text) {
            if block.iter().any(|line| line.contains("pollux-dumpcap")) {
                ran += block.len();
                captured(&block);
                continue;
            }
            let ways: Vec<(&str, Way<'_>)> = block.iter().map(|line| (*line, way(line))).collect();
            let mut first = None;
            let clients = block.iter().filter(|line| is_client_on_model(line)).count();
            let mut server = None;
            for (line, way) in ways {
                ran += 1;
                match way {
                    Way::Cargo(named) => {
                        for name in named {
                            let folder = top().join(name.strip_prefix("pollux-").unwrap_or(name));
                            assert!(folder.join("Cargo.toml").exists(), "{document}: {name}");
                        }
                    }
                    Way::Program(program, args, _) if line.contains("wire=unix:") => match first.take() {
                        None => first = Some((line, (program, args))),
                        Some((other, end)) => pair([other, line], [end, (program, args)]),
                    },
                    Way::OnModel(args) if clients > 0 && !is_client_on_model(line) => server = Some(args),
                    Way::OnModel(args) => on_model(server.take().as_deref(), &args),
                    Way::Doctor => {
                        let end = Running::start(command("doctor", &[])).finish(LIMIT);
                        let is_told = matches!(end.status.code(), Some(0 | 1)) && !end.stdout.is_empty();
                        assert!(is_told, "{line}: {}: {}", end.status, end.stderr.join("\n"));
                    }
                    Way::Program(program, args, true) => between_hosts(line, program, &args),
                    Way::Program(program, args, false) => alone(line, program, &args),
                }
            }
            assert!(first.is_none() && server.is_none(), "{document}: an end without the other");
        }
    }
    assert!(ran >= 10, "{ran} commands in all documents");
}

#[test]
fn each_task_runs_in_ci() {
    let ci = read(&top().join(".ci/run"));
    let mut seen = 0;
    for (document, text) in documents() {
        for task in text.split("cargo xtask ").skip(1) {
            let name: String = task.chars().take_while(|one| one.is_alphanumeric()).collect();
            assert!(ci.contains(&format!("cargo xtask {name}")), "{document}: cargo xtask {name}");
            seen += 1;
        }
    }
    assert!(seen > 2);
}

#[test]
fn links_lead_somewhere_and_the_front_page_is_short() {
    for (document, text) in documents() {
        let folder = Path::new(&document).parent().expect("a folder");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (file, place) =
                link.split_once('#').map_or((link, None), |(file, place)| (file, Some(place)));
            let path = if file.is_empty() { PathBuf::from(&document) } else { folder.join(file) };
            assert!(path.exists(), "{document}: {link}");
            if let Some(place) = place {
                let page = read(&path);
                let mut headings = page.lines().filter(|line| line.starts_with('#'));
                assert!(headings.any(|heading| anchor(heading) == place), "{document}: {link}");
            }
        }
    }
    let lines = read(&top().join("README.md")).lines().count();
    assert!(lines < 120, "README.md has {lines} lines; what is not for a newcomer belongs in docs/");
}

#[test]
fn the_guide_lists_all_its_pages_in_order() {
    let guide = top().join("docs/guide/src");
    let linked = |page: &str| -> Vec<String> {
        let links = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        links.filter(|link| !link.contains('/')).map(str::to_owned).collect()
    };
    let summary = linked(&read(&guide.join("SUMMARY.md")));
    let files = std::fs::read_dir(&guide).expect("the guide").count();
    assert_eq!(summary.len() + 1, files, "SUMMARY.md has {summary:?}");
    for (page, next) in summary.iter().zip(&summary[1..]) {
        let links = linked(&read(&guide.join(page)));
        assert_eq!(links.last(), Some(next), "{page} ends with the next page");
    }
}

#[test]
fn the_loop_in_the_readme_is_the_one_of_skeleton() {
    let source = read(&top().join("skeleton/src/forward.rs"));
    let readme = read(&top().join("README.md"));
    let shown = readme.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block");
    assert!(source.contains(shown), "{shown}");
}

#[test]
fn the_code_in_drivers_is_that_of_the_example() {
    let example =
        ["src/main.rs", "src/lib.rs", "tests/driver.rs"].map(|file| format!("examples/net_udp/{file}"));
    let files = example.into_iter().chain(["port-soft/src/datagram.rs".into()]);
    let sources: Vec<String> = files.map(|file| read(&top().join(file))).collect();
    let page = read(&top().join("docs/drivers.md"));
    let blocks: Vec<&str> =
        page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() > 5, "{} blocks", blocks.len());
    for block in blocks {
        assert!(sources.iter().any(|source| source.contains(block)), "{block}");
    }
    for (check, _) in pollux_port::conformance::ALL {
        assert!(page.contains(&format!("`{check}`")), "docs/drivers.md does not name the check {check}");
    }
}
