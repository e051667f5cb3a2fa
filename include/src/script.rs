//! Finds what an interpreter runs: a script, a module, or a class; and which of its subcommands a program runs. The shim looks for it in
//! the arguments that main gets, and the collector in those of /proc, one after another.
//!
//! It is the first argument that is no option, and no option's value. Code in the command line (`-c CODE`) has no name. If the
//! program is no known interpreter, nothing is looked for.

/// Maximum number of arguments that are read in search of the script. It is large because java is often started with dozens of options.
pub const MOST_ARGUMENTS: usize = 64;

/// An interpreter. Its names and options are code and not tables, because pointers in a table would have to be relocated in every
/// process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Shell,
    Python,
    Perl,
    Ruby,
    Node,
    Php,
    R,
    Julia,
    Lua,
    Java,
    /// Its first argument is the script, or busybox's applet.
    Other,
    /// No interpreter, but a program that does different work by each of its subcommands.
    Tool,
}

/// What an option is, and what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// It stands alone: the next argument is an option or the script.
    Flag,
    /// Code follows, so there is no script.
    Code,
    /// A value follows: the rest of the argument, or the next argument if there is no rest.
    Value,
    /// A value follows, which is always the rest of the argument.
    Rest,
    /// The script follows.
    Script,
    /// A module follows.
    Module,
}

use Language::{Java, Julia, Lua, Node, Other, Perl, Php, Python, R, Ruby, Shell, Tool};
use Meaning::{Code, Flag, Module, Rest, Script, Value};

impl Language {
    /// Finds the language by the name of the program, without its version: `python` is `python3.11`, too.
    fn of_program(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"sh" | b"bash" | b"dash" | b"ksh" | b"zsh" | b"fish" => Shell,
            b"python" | b"pypy" => Python,
            b"perl" => Perl,
            b"ruby" => Ruby,
            b"node" | b"nodejs" => Node,
            b"php" => Php,
            b"R" | b"Rscript" => R,
            b"julia" => Julia,
            b"lua" => Lua,
            b"java" => Java,
            b"busybox" | b"tclsh" => Other,
            b"gpu-track" | b"git" | b"cargo" | b"go" | b"openssl" => Tool,
            b"samtools" | b"bcftools" | b"bedtools" | b"bwa" | b"bwa-mem" | b"seqkit" | b"vg" => Tool,
            _ => return None,
        })
    }

    /// The meaning of an option of one letter, such as `-x`. Such letters can stand together: `-ne CODE`.
    fn letter(self, letter: u8) -> Meaning {
        match (self, letter) {
            (Shell | Python, b'c') | (Shell, b's') => Code,
            (Perl | Julia, b'e' | b'E') => Code,
            (Ruby | R | Lua, b'e') | (Node, b'e' | b'p') | (Php, b'r' | b'R' | b'B' | b'E') => Code,
            (Shell, b'o' | b'O') | (Python, b'W' | b'X' | b'Q') | (Perl, b'I') | (Lua, b'l') => Value,
            (Ruby, b'C' | b'E' | b'I' | b'r') | (Node, b'C' | b'r') | (R, b'd' | b'g') => Value,
            (Php, b'S' | b'c' | b'd' | b't' | b'z') => Value,
            (Julia, b'C' | b'H' | b'J' | b'L' | b'p' | b't') => Value,
            // git and cargo.
            (Tool, b'C' | b'c') => Value,
            (Perl, b'C' | b'D' | b'F' | b'M' | b'V' | b'i' | b'm' | b'x') => Rest,
            (Ruby, b'F' | b'K' | b'T' | b'W' | b'i' | b'x') => Rest,
            (Php, b'f' | b'F') | (R, b'f') => Script,
            (Python, b'm') => Module,
            _ => Flag,
        }
    }

    /// The meaning of a long option, `--name`, or of Java's `-name`. `name` has no dashes. An unknown option is a flag.
    fn word(self, name: &[u8]) -> Meaning {
        match (self, name) {
            (Shell, b"command") | (Node | Julia, b"eval" | b"print") | (Php, b"run") => Code,
            // What follows `--args` belongs to the script, which `--file` names.
            (R, b"args") => Code,
            (Shell, b"rcfile" | b"init-file") | (Python, b"check-hash-based-pycs") => Value,
            (Node, b"conditions" | b"experimental-loader" | b"import" | b"loader" | b"require") => Value,
            (Php, b"define" | b"php-ini") => Value,
            (Julia, b"cpu-target" | b"home" | b"load" | b"procs" | b"sysimage" | b"threads") => Value,
            (Java, b"cp" | b"classpath" | b"class-path" | b"p" | b"module-path" | b"source") => Value,
            (Java, b"add-exports" | b"add-modules" | b"add-opens" | b"add-reads" | b"limit-modules") => Value,
            (Java, b"enable-native-access" | b"patch-module" | b"upgrade-module-path") => Value,
            (Tool, b"git-dir" | b"work-tree" | b"namespace" | b"config" | b"color") => Value,
            (R | Php, b"file") | (Java, b"jar") => Script,
            (Java, b"m" | b"module") => Module,
            _ => Flag,
        }
    }
}

/// What an argument tells about the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'a> {
    /// Nothing yet.
    NotYet,
    /// The script, with its directory.
    Script(&'a [u8]),
    /// A module, as in `-m NAME`.
    Module(&'a [u8]),
    /// The subcommand of a program that is no interpreter.
    Subcommand(&'a [u8]),
    /// There is no script or module, so the search is over.
    Nothing,
}

/// The search for a program's script.
pub struct Search {
    /// `None`: the program is no known interpreter.
    language: Option<Language>,
    /// What the next argument is, as the option before it says. `Flag`: the next argument belongs to no option.
    next: Meaning,
    /// How many arguments were taken.
    arguments: usize,
}

impl Search {
    /// Begins a search in the arguments of a program. `name` is without the directory; that of a login shell begins with `-`.
    pub fn of_program(name: &[u8]) -> Self {
        let name = name.strip_prefix(b"-").unwrap_or(name);
        let is_version = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
        let version = name.iter().rev().take_while(is_version).count();
        let name = name.get(..name.len().saturating_sub(version)).unwrap_or_default();
        Self { language: Language::of_program(name), next: Flag, arguments: 0 }
    }

    /// Whether there is something to search for.
    pub fn has_language(&self) -> bool {
        self.language.is_some()
    }

    /// Takes the next of the arguments after the program's name, and returns what it tells. After [`Found::NotYet`] the caller must
    /// add the next argument; any other result ends the search. After [`MOST_ARGUMENTS`] arguments the result is [`Found::Nothing`].
    pub fn add<'a>(&mut self, argument: &'a [u8]) -> Found<'a> {
        let Some(language) = self.language else { return Found::Nothing };
        self.arguments += 1;
        if self.arguments > MOST_ARGUMENTS {
            return Found::Nothing;
        }
        match core::mem::replace(&mut self.next, Flag) {
            Flag => self.option_or_script(language, argument),
            // This argument is the value of the option before it.
            Value => Found::NotYet,
            // Never reached: `option` keeps neither of these for the next argument.
            Code | Rest => Found::Nothing,
            Script => Found::Script(argument),
            Module => Found::Module(argument),
        }
    }

    /// Takes an argument that belongs to no option before it: it is an option, or the script.
    fn option_or_script<'a>(&mut self, language: Language, argument: &'a [u8]) -> Found<'a> {
        match argument {
            // The script comes next.
            b"--" => self.option(Script, None),
            [b'-', b'-', word @ ..] => self.word(language, word),
            // The program is read from stdin.
            b"-" => Found::Nothing,
            [b'-', word @ ..] if language == Java => self.word(language, word),
            // `@FILE`: java reads its options and the class from FILE.
            [b'@', ..] if language == Java => Found::Nothing,
            [b'-', letters @ ..] => self.letters(language, letters),
            // `cargo +nightly build`
            [b'+', ..] if language == Tool => Found::NotYet,
            // `+x` switches off what `-x` switches on, and `+o NAME` what `-o NAME` does.
            [b'+', letters @ ..] if language == Shell => self.letters(language, letters),
            // `R CMD BATCH [OPTIONS] SCRIPT` runs R's script, and `R CMD TOOL` a script of R's own, such as INSTALL.
            b"CMD" | b"BATCH" if language == R => Found::NotYet,
            subcommand if language == Tool => Found::Subcommand(subcommand),
            script => Found::Script(script),
        }
    }

    /// Takes a long option, without its dashes: `name` or `name=value`. Returns the script or module that it names, if any.
    fn word<'a>(&mut self, language: Language, option: &'a [u8]) -> Found<'a> {
        let length = option.iter().take_while(|byte| **byte != b'=').count();
        let name = option.get(..length).unwrap_or_default();
        self.option(language.word(name), option.get(length + 1..))
    }

    /// Takes options of single letters, without the dash before them. If one takes a value, the letters after it are that value.
    fn letters<'a>(&mut self, language: Language, mut letters: &'a [u8]) -> Found<'a> {
        while let [letter, rest @ ..] = letters {
            match language.letter(*letter) {
                Flag => letters = rest,
                Rest => return Found::NotYet,
                meaning => return self.option(meaning, Some(rest).filter(|rest| !rest.is_empty())),
            }
        }
        Found::NotYet
    }

    /// Takes an option of this meaning. `value` is what follows it in the same argument. If the option needs a value and has none
    /// there, the next argument is its value.
    fn option<'a>(&mut self, meaning: Meaning, value: Option<&'a [u8]>) -> Found<'a> {
        match (meaning, value) {
            (Code, _) => Found::Nothing,
            (Flag | Rest, _) | (Value, Some(_)) => Found::NotYet,
            (Script, Some(script)) => Found::Script(script),
            (Module, Some(module)) => Found::Module(module),
            (Value | Script | Module, None) => {
                self.next = meaning;
                Found::NotYet
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(words: &[&'static str]) -> Found<'static> {
        let mut search = Search::of_program(words[0].as_bytes());
        let mut found = words[1..].iter().map(|word| search.add(word.as_bytes()));
        found.find(|found| *found != Found::NotYet).unwrap_or(Found::NotYet)
    }

    // Requirement: SEE-13
    #[test]
    fn script_is_found_behind_the_options_of_its_language() {
        for (line, script) in [
            ("python3.11 -u -W ignore -Xdev /a/train.py --lr 1", "/a/train.py"),
            ("bash -euo pipefail build.sh x", "build.sh"),
            ("-bash configure", "configure"),
            ("perl -w -I lib -Mstrict run.pl", "run.pl"),
            ("perl -i.bak run.pl", "run.pl"),
            ("ruby -r json -Ilib run.rb", "run.rb"),
            ("node --require ts-node/register --max-old-space-size=1 app.js", "app.js"),
            ("php -d memory_limit=1G job.php", "job.php"),
            ("php -f job.php", "job.php"),
            ("Rscript --vanilla foo.R 3", "foo.R"),
            ("R --no-echo --no-restore --file=foo.R --args 3", "foo.R"),
            ("R -f foo.R", "foo.R"),
            ("R CMD BATCH --vanilla foo.R out.txt", "foo.R"),
            ("R CMD INSTALL a.tar.gz", "INSTALL"),
            ("julia -t 4 --project=. sim.jl", "sim.jl"),
            ("lua -l strict run.lua", "run.lua"),
            ("busybox gzip -d", "gzip"),
            ("java -Xmx1g -jar /opt/x.jar -v", "/opt/x.jar"),
            ("java -cp a.jar:b.jar -Dx=y com.example.Main 1", "com.example.Main"),
            ("java --module-path mods --add-modules=all Hello.java", "Hello.java"),
            ("sh -- -odd", "-odd"),
            ("bash +e build.sh", "build.sh"),
            ("bash -e +o posix +O extglob build.sh", "build.sh"),
        ] {
            let words: std::vec::Vec<&str> = line.split(' ').collect();
            assert_eq!(found(&words), Found::Script(script.as_bytes()), "{line}");
        }
    }

    // Requirement: SEE-13
    #[test]
    fn code_in_the_command_line_is_no_script() {
        for line in [
            "sh -c x",
            "bash -lc x",
            "sh -ec x y",
            "python3 -c x",
            "python3 -Sc x",
            "perl -e x",
            "perl -lane x file",
            "perl -pe s/a/b/ file",
            "ruby -ne x",
            "node -e x",
            "node -pe x",
            "node --eval=x",
            "php -r x",
            "Rscript -e x",
            "R --no-echo -e x",
            "R --args x",
            "julia -E x",
            "lua -e x",
            "java @options Main",
            "python3 -",
            "bash -s -- token",
        ] {
            let words: std::vec::Vec<&'static str> = line.split(' ').collect();
            assert_eq!(found(&words), Found::Nothing, "{line}");
        }
    }

    // Requirement: SEE-13
    #[test]
    fn modules_are_told_from_scripts() {
        for line in ["python3 -m http.server", "python3 -um http.server 80", "python3 -mhttp.server"] {
            let words: std::vec::Vec<&'static str> = line.split(' ').collect();
            assert_eq!(found(&words), Found::Module(b"http.server"), "{line}");
        }
        assert_eq!(found(&["java", "-p", "mods", "-m", "app/Main"]), Found::Module(b"app/Main"));
    }

    // Requirement: SEE-13
    #[test]
    fn subcommand_is_found_behind_the_options_of_its_program() {
        for (line, subcommand) in [
            ("samtools view -b a.sam", "view"),
            ("bwa-mem2 mem -t 4 ref.fa a.fq", "mem"),
            ("git -C dir -c a.b=c --git-dir x --no-pager log", "log"),
            ("cargo +nightly -q build", "build"),
        ] {
            let words: std::vec::Vec<&'static str> = line.split(' ').collect();
            assert_eq!(found(&words), Found::Subcommand(subcommand.as_bytes()), "{line}");
        }
    }

    #[test]
    fn other_programs_and_too_many_arguments_have_none() {
        assert_eq!(found(&["gcc", "-c", "a.c"]), Found::Nothing);
        assert_eq!(found(&["cat", "file"]), Found::Nothing);
        assert_eq!(found(&["java"]), Found::NotYet);
        let mut many = std::vec!["java"];
        many.resize(MOST_ARGUMENTS + 2, "-ea");
        assert_eq!(found(&many), Found::Nothing);
    }
}
