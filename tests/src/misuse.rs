//! Doc tests of misuse that must not compile.

/// Makes a pair of doc tests of each entry: a program without its last line, which compiles and runs, and the same with it, which does
/// not compile and fails by that error. So it is for that line that it does not. `begin` and `end` stand around the lines.
#[macro_export]
macro_rules! misuse {
    (
        begin $begin:literal, end $end:literal;
        $($name:ident, $error:literal: $sound:literal, but not $wrong:literal;)*
    ) => { $(
        #[doc = concat!(
            "```\n", $begin, $sound, "\n", $end, "```\n```compile_fail,", $error, "\n",
            $begin, $sound, "\n", $wrong, "\n", $end, "```",
        )]
        mod $name {}
    )* };
}
