//! `APP [EAL options] -- [app options]`.

mod options;
mod refusal;
mod spelling;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::profile::{Profile, Setting};
use crate::{ConfigError, EalSpec, PortSpec};
use options::EalOptions;

/// A parsed command line: EAL options as data, application arguments unparsed, with a profile merged into both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// Program name, used in messages.
    pub program: String,
    /// EAL options.
    pub eal: EalSpec,
    /// Ports to open, in DPDK's numbering order: those of `-a`, then those of `--vdev`; without either, those of the profile.
    pub ports: Vec<PortSpec>,
    /// Application arguments: those of the profile, then those after `--`.
    pub app: Vec<OsString>,
    /// The arguments as they were typed.
    pub arguments: Arguments,
    /// Warnings about options that have no effect or are deprecated, one line each.
    pub warnings: Vec<String>,
}

/// The arguments of a command line as they were typed, without what a profile adds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// The program, then those before `--`.
    pub eal: Vec<OsString>,
    /// Those after `--`.
    pub app: Vec<OsString>,
}

/// Result of parsing a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<A> {
    /// Run the application with these EAL and application options.
    Run(Box<CommandLine>, A),
    /// Print this text and exit with status 0 (`--help`, `--version`).
    Print(String),
}

impl CommandLine {
    /// Parses a complete command line, program name included, and the profile it names.
    ///
    /// `--help` and `--version` are for [`CommandLine::parse_with`], which knows the app's half; they are refused here.
    ///
    /// # Errors
    /// [`ConfigError`], one line, for the first mistake.
    pub fn parse<I, T>(args: I) -> Result<Self, ConfigError>
    where
        I: IntoIterator<Item = T>,
        T: Into<OsString>,
    {
        match Self::parse_with::<NoOptions, _, _>(args)? {
            Parsed::Run(line, NoOptions { rest: _ }) => Ok(*line),
            Parsed::Print(_) => {
                Err(ConfigError::usage("--help", "is handled by the program, not by its EAL options"))
            }
        }
    }

    /// Parses a complete command line, the application options with the clap parser `A`, and the profile it names.
    ///
    /// `A`'s clap `about` is the first paragraph of `--help`, its `after_help` the last one.
    ///
    /// # Errors
    /// [`ConfigError`], one line, for the first mistake.
    pub fn parse_with<A, I, T>(args: I) -> Result<Parsed<A>, ConfigError>
    where
        A: CommandFactory + FromArgMatches,
        I: IntoIterator<Item = T>,
        T: Into<OsString>,
    {
        let arguments = split(args);
        let program = program_name(&arguments);
        let (mut eal, mut app) = (arguments.eal.get(1..).unwrap_or_default().to_vec(), arguments.app.clone());
        if app.iter().any(|arg| arg == "--help" || arg == "-h") {
            return Ok(Parsed::Print(help::<A>(&program)));
        }
        let app_options = option_names::<A>();
        let given = matches::<EalOptions>(&eal, &app_options)?;
        let options = take::<EalOptions>(given.clone())?;
        let app_has_d = app_options.iter().any(|name| name == "-d");
        options.check_driver_paths(app_has_d).map_err(|error| typed::<EalOptions>(error, &eal))?;
        if options.help {
            return Ok(Parsed::Print(help::<A>(&program)));
        }
        if options.version {
            return Ok(Parsed::Print(format!("{program} (Pollux {})\n", env!("CARGO_PKG_VERSION"))));
        }
        let mut ports = Vec::new();
        if let Some(path) = options.profile() {
            let profile = check_profile::<A>(path)?;
            let given_app = matches::<A>(&app, &[])?;
            eal.splice(0..0, words_under::<EalOptions>(&profile.eal, &given));
            app.splice(0..0, words_under::<A>(&profile.app, &given_app));
            if !options.names_ports() {
                ports = profile.ports;
            }
        }
        let finished = take::<EalOptions>(matches::<EalOptions>(&eal, &[])?)?.finish();
        let (eal, warnings) = finished.map_err(|error| typed::<EalOptions>(error, &eal))?;
        let named = eal.devices.allow.iter().chain(&eal.devices.vdevs);
        ports.extend(named.cloned().map(PortSpec::new));
        for port in &ports {
            eal.devices.check_blocked(&port.device)?;
        }
        let own = take::<A>(matches::<A>(&app, &[])?)?;
        Ok(Parsed::Run(Box::new(Self { program, eal, ports, app, arguments, warnings }), own))
    }
}

/// The app half when it is not looked at.
#[derive(clap::Parser)]
struct NoOptions {
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    rest: Vec<OsString>,
}

/// Splits a command line into EAL arguments, the program first, and application arguments.
fn split<I, T>(args: I) -> Arguments
where
    I: IntoIterator<Item = T>,
    T: Into<OsString>,
{
    let mut args = args.into_iter().map(Into::into);
    let program = args.next();
    let eal = program.into_iter().chain(args.by_ref().take_while(|arg| arg != "--")).collect();
    Arguments { eal, app: args.collect() }
}

/// The file name of the program.
fn program_name(arguments: &Arguments) -> String {
    let path = arguments.eal.first().map(PathBuf::from).unwrap_or_default();
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// One half through clap, its report made one line. `other_half` are the options of the half behind `--`.
fn matches<A: CommandFactory>(args: &[OsString], other_half: &[String]) -> Result<ArgMatches, ConfigError> {
    bare::<A>().try_get_matches_from(args).map_err(|error| {
        // clap does not tell which argument it is.
        let odd = args.iter().find(|arg| arg.to_str().is_none());
        match (error.kind(), odd) {
            (ErrorKind::InvalidUtf8, Some(arg)) => {
                ConfigError::NotText { text: arg.to_string_lossy().into_owned() }
            }
            _ => typed::<A>(refusal::one_line(&error, other_half), args),
        }
    })
}

/// The error with options spelt as they were typed.
fn typed<A: CommandFactory>(error: ConfigError, args: &[OsString]) -> ConfigError {
    spelling::as_typed(error, args, &A::command())
}

fn take<A: FromArgMatches>(mut matches: ArgMatches) -> Result<A, ConfigError> {
    A::from_arg_matches_mut(&mut matches).map_err(|error| refusal::one_line(&error, &[]))
}

/// clap's own help would show one half only.
fn bare<A: CommandFactory>() -> clap::Command {
    A::command()
        .no_binary_name(true)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .allow_negative_numbers(true)
}

/// Reads a profile and tries its settings one after the other, so that a mistake is reported where it stands.
fn check_profile<A: CommandFactory + FromArgMatches>(path: &Path) -> Result<Profile, ConfigError> {
    let profile = Profile::read(path)?;
    let (mut eal, mut app) = (Vec::new(), Vec::new());
    for setting in &profile.eal {
        eal.extend(words(setting));
        let so_far =
            matches::<EalOptions>(&eal, &[]).and_then(take::<EalOptions>).and_then(EalOptions::finish);
        so_far
            .map_err(|error| typed::<EalOptions>(error, &eal))
            .map_err(|error| profile.locate(setting, &error))?;
    }
    for setting in &profile.app {
        app.extend(words(setting));
        let so_far = matches::<A>(&app, &[]).and_then(take::<A>);
        so_far.map_err(|error| profile.locate(setting, &error))?;
    }
    Ok(profile)
}

fn words(setting: &Setting) -> Vec<OsString> {
    setting.words.iter().map(OsString::from).collect()
}

/// The profile's words for all options that the command line leaves open.
fn words_under<A: CommandFactory>(settings: &[Setting], given: &ArgMatches) -> Vec<OsString> {
    let command = A::command();
    let typed = |id: &str| {
        given.try_contains_id(id).is_ok() && given.value_source(id) == Some(ValueSource::CommandLine)
    };
    let open = |setting: &&Setting| {
        let arg = command.get_arguments().find(|arg| {
            arg.get_long_and_visible_aliases().is_some_and(|longs| longs.contains(&setting.key.as_str()))
                || arg.get_all_aliases().is_some_and(|longs| longs.contains(&setting.key.as_str()))
        });
        let Some(arg) = arg else { return true };
        let id = arg.get_id().as_str();
        let rivals =
            options::RIVALS.iter().filter(|group| group.contains(&id)).flat_map(|group| group.iter());
        !typed(id) && !rivals.into_iter().any(|rival| typed(rival))
    };
    settings.iter().filter(open).flat_map(words).collect()
}

/// `--name` and `-n` of every option.
fn option_names<A: CommandFactory>() -> Vec<String> {
    let command = A::command();
    let names = command.get_arguments().flat_map(|arg| {
        let long = arg.get_long().map(|long| format!("--{long}"));
        let short = arg.get_short().map(|short| format!("-{short}"));
        long.into_iter().chain(short)
    });
    names.collect()
}

/// Both halves' options on one page.
fn help<A: CommandFactory>(program: &str) -> String {
    let width = help_width(std::env::var("COLUMNS").ok().as_deref());
    let page = |command: clap::Command, template: &'static str| {
        let command = match width {
            Some(width) => command.term_width(width),
            None => command,
        };
        command.help_template(template).render_help().to_string().trim_end().to_owned()
    };
    let (about, after) = (page(bare::<A>(), "{about}"), page(bare::<A>(), "{after-help}"));
    let part = |text: String| if text.is_empty() { text } else { format!("{}\n\n", text.trim_start()) };
    format!(
        "{}Usage: {program} [EAL options] -- [app options]\n       ('--' may be left out when there are no app \
         options)\n\nApp options:\n{}\n\nEAL options:\n{}\n\n{}",
        part(about),
        page(bare::<A>(), "{options}"),
        page(bare::<EalOptions>(), "{options}"),
        part(after),
    )
}

/// What `COLUMNS` says of the terminal's width. `None`: clap asks the terminal, and takes 100 where there is none.
fn help_width(columns: Option<&str>) -> Option<usize> {
    // Narrower than this, there is no room beside the options' names.
    const LEAST: usize = 40;
    let columns = columns?.trim().parse::<usize>().ok()?;
    (columns > 0).then(|| columns.max(LEAST))
}
