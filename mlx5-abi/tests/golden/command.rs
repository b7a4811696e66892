use pollux_mlx5_abi::command::{self, opcode};

use crate::Golden;

pub(crate) fn compare(golden: &mut Golden) {
    for layout in command::LAYOUTS.iter().copied().flatten() {
        golden.same("struct", layout.name, &[layout.bytes as u64 * 8]);
        for place in layout.fields {
            let name = format!("{}.{}", layout.name, place.manual_name());
            golden.same("field", &name, &[place.bit.into(), place.bits.into()]);
        }
    }
    for (code, name) in opcode::NAMES {
        golden.same("const", &format!("MLX5_CMD_OP_{name}"), &[(*code).into()]);
    }
}
