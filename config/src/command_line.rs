//! `APP [EAL options] -- [app options]`.

mod options;
mod refusal;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches};

use crate::{ConfigError, EalSpec};
use options::EalOptions;

/// A command line taken apart: the EAL half as data, the app half as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The program's name, for messages.
    pub program: String,
    /// The EAL half.
    pub eal: EalSpec,
    /// All that follows `--`.
    pub app: Vec<OsString>,
    /// `--profile`.
    pub profile: Option<PathBuf>,
    /// Options that were accepted and do nothing, or that are deprecated; one line each.
    pub warnings: Vec<String>,
}

/// What a command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<A> {
    /// Run, with both halves.
    Run(Box<CommandLine>, A),
    /// Print this and end with status 0: `--help`, `--version`.
    Print(String),
}

impl CommandLine {
    /// Reads a whole command line, the program's name first.
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
        let (program, eal, app) = split(args);
        let options = read::<EalOptions>(&eal, &[])?;
        if options.help || options.version {
            let option = if options.help { "--help" } else { "--version" };
            return Err(ConfigError::usage(option, "is answered by the program, not by its EAL options"));
        }
        options.finish(program, app)
    }

    /// Reads a whole command line, the app's half by its own clap options `A`.
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
        let (program, eal, app) = split(args);
        let asks_help = |arg: &OsString| arg == "--help" || arg == "-h";
        if app.iter().any(asks_help) {
            return Ok(Parsed::Print(help::<A>(&program)));
        }
        let options = read::<EalOptions>(&eal, &long_options::<A>())?;
        if options.help {
            return Ok(Parsed::Print(help::<A>(&program)));
        }
        if options.version {
            return Ok(Parsed::Print(format!("{program} (Pollux {})\n", env!("CARGO_PKG_VERSION"))));
        }
        let line = options.finish(program, app)?;
        let own = read::<A>(&line.app, &[])?;
        Ok(Parsed::Run(Box::new(line), own))
    }
}

/// The program's name, the EAL half, the app half.
fn split<I, T>(args: I) -> (String, Vec<OsString>, Vec<OsString>)
where
    I: IntoIterator<Item = T>,
    T: Into<OsString>,
{
    let mut args = args.into_iter().map(Into::into);
    let program = args.next().map(PathBuf::from).unwrap_or_default();
    let program = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let eal = args.by_ref().take_while(|arg| arg != "--").collect();
    (program, eal, args.collect())
}

/// One half through clap, its report made one line. `other_half` are the long options of the half behind `--`.
fn read<A: CommandFactory + FromArgMatches>(
    args: &[OsString],
    other_half: &[String],
) -> Result<A, ConfigError> {
    let command = A::command().no_binary_name(true).disable_help_flag(true).disable_version_flag(true);
    let mut matches =
        command.try_get_matches_from(args).map_err(|error| refusal::one_line(&error, other_half))?;
    A::from_arg_matches_mut(&mut matches).map_err(|error| refusal::one_line(&error, other_half))
}

fn long_options<A: CommandFactory>() -> Vec<String> {
    let command = A::command();
    let longs = command.get_arguments().flat_map(|arg| {
        let long = arg.get_long().map(|long| format!("--{long}"));
        let short = arg.get_short().map(|short| format!("-{short}"));
        long.into_iter().chain(short)
    });
    longs.collect()
}

/// Both halves' options on one page.
fn help<A: CommandFactory>(program: &str) -> String {
    let page = |command: clap::Command| {
        command
            .disable_help_flag(true)
            .disable_version_flag(true)
            .help_template("{options}")
            .term_width(110)
            .render_help()
            .to_string()
    };
    let app = A::command();
    let part =
        |text: Option<&clap::builder::StyledStr>| text.map(|text| format!("{text}\n")).unwrap_or_default();
    let (about, after) = (part(app.get_about()), part(app.get_after_help()));
    format!(
        "{about}\nUsage: {program} [EAL options] -- [app options]\n       ('--' may be left out when there are no app \
         options)\n\nApp options:\n{}\n\nEAL options:\n{}\n\n{after}",
        page(app).trim_end(),
        page(EalOptions::command()).trim_end(),
    )
}
