//! Options that the originals have and this family has not: each is refused with the reason, where it would be unknown.
//!
//! Source of names, and of which take a value: linux-rdma/perftest `src/perftest_parameters.c`, `parser`, of 6.24 to 6.29.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

/// One of them.
#[derive(Debug)]
struct Lacking {
    name: &'static str,
    short: Option<char>,
    takes_value: bool,
    why: &'static str,
}

const fn flag(name: &'static str, why: &'static str) -> Lacking {
    Lacking { name, short: None, takes_value: false, why }
}

const fn value(name: &'static str, why: &'static str) -> Lacking {
    Lacking { name, short: None, takes_value: true, why }
}

const fn short(short: char, lacking: Lacking) -> Lacking {
    Lacking { short: Some(short), ..lacking }
}

const ACCELERATOR: &str = "accelerator memory is not supported";
const ENCRYPTION: &str = "encryption offload is not supported";
const DC: &str = "DC is not supported; use -c RC, UC, UD or XRC";
const OWN_MEMORY: &str = "message buffers are always allocated by the program";
const ORDER: &str = "out-of-order placement is not supported";
const HINTS: &str = "PCIe TPH hints are not supported";
const POLLS: &str = "the CQ is always polled for up to 32 completions";

/// All of them.
const LACKING: &[Lacking] = &[
    short('X', value("vector", "completion events always use vector 0")),
    value("force-link", "the link type is always Ethernet"),
    flag("use-null-mr", OWN_MEMORY),
    value("mmap", OWN_MEMORY),
    value("mmap-offset", OWN_MEMORY),
    value("payload_file_path", "the payload cannot be chosen; --data_validation verifies it"),
    flag("mr_per_qp", "one memory region serves all QPs"),
    value("pkey_index", "RoCE uses only the default P_Key"),
    value("dlid", "Ethernet ports have no LID"),
    value("bind_source_ip", "the source address is chosen by the routing table"),
    flag("use_old_post_send", "WQEs are posted in only one way"),
    value("wait_destroy", "resources are destroyed when the test ends"),
    flag("unsolicited_write", "it requires SRD, which is not supported; --write_with_imm takes receives"),
    flag("connectionless", DC),
    value("log_dci_streams", DC),
    value("log_active_dci_streams", DC),
    flag("use_ooo", ORDER),
    flag("no_ddp", ORDER),
    flag("no_enhanced_reorder", ORDER),
    value("congest_type", "congestion control is not supported"),
    value("cqe_poll", POLLS),
    flag("disable_dynamic_polling", POLLS),
    flag("disable_numa", "the CPUs are chosen by the EAL option -l or by --pin_cores"),
    flag("data_validation_debug", "--data_validation reports the number of wrong bytes"),
    value("tph_mem", HINTS),
    value("cpu_id", HINTS),
    value("ph", HINTS),
    flag("sig_offload", "signature offload is not supported"),
    flag("sig_before", ENCRYPTION),
    flag("aes_xts", ENCRYPTION),
    flag("encrypt_on_tx", ENCRYPTION),
    value("aes_block_size", ENCRYPTION),
    value("kek_path", ENCRYPTION),
    value("credentials_path", ENCRYPTION),
    value("data_enc_keys_number", ENCRYPTION),
    value("data_enc_key_app_path", ENCRYPTION),
    value("use_cuda", ACCELERATOR),
    value("use_cuda_bus_id", ACCELERATOR),
    flag("use_cuda_dmabuf", ACCELERATOR),
    flag("use_cuda_pcie_mapping", ACCELERATOR),
    value("cuda_mem_type", ACCELERATOR),
    flag("use_data_direct", ACCELERATOR),
    value("gpu_touch", ACCELERATOR),
    value("use_rocm", ACCELERATOR),
    flag("use_rocm_dmabuf", ACCELERATOR),
    value("use_neuron", ACCELERATOR),
    flag("use_neuron_dmabuf", ACCELERATOR),
    value("use_hl", ACCELERATOR),
    value("use_mlu", ACCELERATOR),
    flag("use_mlu_dmabuf", ACCELERATOR),
    value("use_musa", ACCELERATOR),
    value("use_musa_bus_id", ACCELERATOR),
    flag("use_musa_dmabuf", ACCELERATOR),
    flag("use_musa_pcie_mapping", ACCELERATOR),
    value("use_opencl", ACCELERATOR),
    value("opencl_platform_id", ACCELERATOR),
    value("use_ib_dm_dmabuf", ACCELERATOR),
];

/// Which of them was given first in the list; none when all is well.
#[derive(Clone, Copy, Debug, Default)]
pub struct Absent(Option<&'static Lacking>);

impl Absent {
    /// Its name, and why it is absent.
    #[must_use]
    pub fn given(self) -> Option<(&'static str, &'static str)> {
        self.0.map(|lacking| (lacking.name, lacking.why))
    }
}

impl FromArgMatches for Absent {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let typed = |lacking: &&Lacking| matches.value_source(lacking.name) == Some(ValueSource::CommandLine);
        Ok(Self(LACKING.iter().find(typed)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Absent {
    fn augment_args(command: Command) -> Command {
        LACKING.iter().fold(command, |command, lacking| {
            let action = if lacking.takes_value { ArgAction::Append } else { ArgAction::Count };
            let arg = Arg::new(lacking.name).long(lacking.name).action(action).hide(true);
            command.arg(lacking.short.into_iter().fold(arg, Arg::short))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::perftest::options::Options;
    use crate::perftest::raw::options::RawOptions;
    use crate::perftest::settings::{Kind, Settings, Test, Verb};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[derive(Parser)]
    struct RawLine {
        #[command(flatten)]
        options: RawOptions,
    }

    #[test]
    fn each_is_refused_by_its_name_with_the_reason() {
        for lacking in LACKING {
            let mut names = vec![format!("--{}", lacking.name)];
            names.extend(lacking.short.map(|short| format!("-{short}")));
            for name in names {
                let mut words = vec!["test", &name];
                words.extend(lacking.takes_value.then_some("1"));
                let options = Line::try_parse_from(&words).expect("it is known").options;
                let test = Test { verb: Verb::Write, kind: Kind::Bandwidth };
                let error = Settings::new(test, options).expect_err("it is refused");
                assert_eq!(
                    error,
                    format!("--{} is not supported by write_bw: {}", lacking.name, lacking.why)
                );
                let raw = RawLine::try_parse_from(&words).expect("it is known").options;
                assert_eq!(raw.base.absent.given(), Some((lacking.name, lacking.why)));
            }
        }
        let options = Line::try_parse_from(["test", "-n", "100"]).expect("it is known").options;
        assert_eq!(options.absent.given(), None);
    }
}
