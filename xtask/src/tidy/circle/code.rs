//! What the files of a crate define and name, read from their tokens: comments and strings are none, macros' arguments are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::Uses;
use crate::run::Outcome;

/// A name in the code, and its line.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub(super) path: String,
    pub(super) line: usize,
}

/// Where a `use` and a path lead at most, over re-exports of re-exports.
const STEPS_MAX: usize = 16;

struct Import {
    path: Vec<String>,
    /// What it is called here; `*` for everything.
    called: String,
    re_export: bool,
    line: usize,
}

#[derive(Default)]
struct Module {
    file: usize,
    /// From the crate's root.
    place: Vec<String>,
    defined: BTreeSet<String>,
    imports: Vec<Import>,
    /// Paths of two segments and more in the code itself.
    paths: Vec<(Vec<String>, usize)>,
    /// Every word of the code outside of `use`.
    words: BTreeSet<String>,
}

struct Crate {
    files: Vec<PathBuf>,
    /// The place of each file's module.
    places: Vec<Vec<String>>,
    modules: BTreeMap<Vec<String>, Module>,
}

/// The files that a crate begins at: of the library, and of each program.
pub(super) fn roots(src: &Path) -> Outcome<Vec<PathBuf>> {
    let mut roots: Vec<_> = ["lib.rs", "main.rs"].map(|name| src.join(name)).into();
    for entry in fs::read_dir(src.join("bin")).into_iter().flatten() {
        let path = entry.map_err(|why| format!("cannot read {}: {why}", src.display()))?.path();
        roots.push(if path.is_dir() { path.join("main.rs") } else { path });
    }
    roots.retain(|root| root.is_file());
    Ok(roots)
}

/// The files of the crate that begins at `root`, and what they use of each other.
pub(super) fn uses(root: &Path) -> Outcome<(Vec<PathBuf>, Uses)> {
    let mut all = Crate { files: Vec::new(), places: Vec::new(), modules: BTreeMap::new() };
    all.load(root, root.parent().unwrap_or(root), Vec::new())?;
    let mut uses = Uses::new();
    for module in all.modules.values() {
        let imports = module.imports.iter();
        let imports = imports.filter(|import| !import.re_export || module.words.contains(&import.called));
        let imports = imports.map(|import| (&import.path, import.line));
        for (path, line) in imports.chain(module.paths.iter().map(|(path, line)| (path, *line))) {
            let Some(place) = all.definer(&module.place, path, 0) else { continue };
            let used = all.modules[&place].file;
            // A part and what it is part of.
            if !all.places[module.file].starts_with(&all.places[used]) {
                let names = uses.entry(module.file).or_default().entry(used).or_default();
                names.push(Name { path: path.join("::"), line });
            }
        }
    }
    for names in uses.values_mut().flat_map(BTreeMap::values_mut) {
        names.sort_by_key(|name| name.line);
    }
    Ok((all.files, uses))
}

impl Crate {
    /// Reads a file and those of the modules that it declares, which stand in `folder`.
    fn load(&mut self, path: &Path, folder: &Path, place: Vec<String>) -> Outcome {
        let text =
            fs::read_to_string(path).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
        let tokens: TokenStream = text.parse().map_err(|why| format!("{}: {why}", path.display()))?;
        let file = self.files.len();
        self.files.push(path.to_path_buf());
        self.places.push(place.clone());
        self.module(file, tokens, folder, place)
    }

    fn module(&mut self, file: usize, tokens: TokenStream, folder: &Path, place: Vec<String>) -> Outcome {
        let mut module = Module { file, place: place.clone(), ..Module::default() };
        let mut inner = Vec::new();
        read(tokens, &mut module, &mut inner);
        self.modules.insert(place.clone(), module);
        for (name, body) in inner {
            let place: Vec<_> = place.iter().chain([&name]).cloned().collect();
            let (path, folder) = (folder.join(format!("{name}.rs")), folder.join(&name));
            match body {
                Some(body) => self.module(file, body, &folder, place)?,
                None if path.is_file() => self.load(&path, &folder, place)?,
                // One that is only declared for tests, or elsewhere.
                None => {}
            }
        }
        Ok(())
    }

    /// The module that defines what `path` names in the module at `at`; none where it is another crate's, or a module itself.
    fn definer(&self, at: &[String], path: &[String], steps: usize) -> Option<Vec<String>> {
        let module = self.modules.get(at).filter(|_| steps < STEPS_MAX)?;
        let mut place = at.to_vec();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => (place, rest) = (Vec::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|word| word == "super") {
                    place.pop()?;
                    rest = &rest[1..];
                }
            }
            first if module.defined.contains(first) || self.child(at, first).is_some() => {}
            // An import of this module, or another crate.
            first => {
                let import = module.imports.iter().find(|import| import.called == first);
                let import = import.filter(|import| import.path != path)?;
                let path: Vec<_> = import.path.iter().chain(&rest[1..]).cloned().collect();
                return self.definer(at, &path, steps + 1);
            }
        }
        while let Some(child) = rest.first().and_then(|word| self.child(&place, word)) {
            (place, rest) = (child, &rest[1..]);
        }
        let word = rest.first()?;
        if word == "*" {
            return Some(place);
        }
        let module = self.modules.get(&place)?;
        if module.defined.contains(word) {
            return Some(place);
        }
        if let Some(import) = module.imports.iter().find(|import| import.called == *word) {
            let path: Vec<_> = import.path.iter().chain(&rest[1..]).cloned().collect();
            return self.definer(&place, &path, steps + 1);
        }
        let globs = module.imports.iter().filter(|import| import.called == "*");
        let found = globs
            .filter_map(|import| self.definer(&place, &import.path, steps + 1))
            .find(|from| self.modules[from].defined.contains(word));
        // What a macro defines is found nowhere: it is the module's.
        Some(found.unwrap_or(place))
    }

    fn child(&self, place: &[String], name: &str) -> Option<Vec<String>> {
        let place: Vec<_> = place.iter().map(String::as_str).chain([name]).map(str::to_owned).collect();
        self.modules.contains_key(&place).then_some(place)
    }
}

/// What an item begins with; its name follows, but for the last ones.
const ITEMS: &[&str] =
    &["struct", "enum", "union", "trait", "type", "const", "static", "fn", "mod", "use", "impl"];

/// Modules in a module: their names, and their bodies where they stand in the file itself.
type Inner = Vec<(String, Option<TokenStream>)>;

fn read(tokens: TokenStream, module: &mut Module, inner: &mut Inner) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let next = tokens.get(at + 1);
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => at = attribute(&tokens, at),
            TokenTree::Ident(word) => {
                let word = word.to_string();
                let line = token.span().start().line;
                match (word.as_str(), next) {
                    ("mod", Some(TokenTree::Ident(name))) => {
                        let body = match tokens.get(at + 2) {
                            Some(TokenTree::Group(body)) => Some(body.stream()),
                            _ => None,
                        };
                        inner.push((name.to_string(), body));
                        at += 3;
                    }
                    // Not `impl Trait + use<'a>`.
                    ("use", Some(next)) if !is(next, '<') => {
                        let end =
                            (at..tokens.len()).find(|end| is(&tokens[*end], ';')).unwrap_or(tokens.len());
                        let before = at.checked_sub(1).map(|before| &tokens[before]);
                        let re_export = matches!(before, Some(TokenTree::Ident(_)))
                            || matches!(before, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
                        tree(&tokens[at + 1..end], &[], &mut |path, called| {
                            module.imports.push(Import { path, called, re_export, line });
                        });
                        at = end + 1;
                    }
                    _ => at = word_or_path(&tokens, at, module),
                }
            }
            TokenTree::Group(group) => {
                read(group.stream(), module, inner);
                at += 1;
            }
            _ => at += 1,
        }
    }
}

/// Reads an identifier, or the path that it begins, and notes what is defined by it. Returns what follows.
fn word_or_path(tokens: &[TokenTree], at: usize, module: &mut Module) -> usize {
    let mut path = vec![tokens[at].to_string()];
    let mut end = at + 1;
    while let [colon, second, TokenTree::Ident(word), ..] = &tokens[end..]
        && is(colon, ':')
        && is(second, ':')
    {
        path.push(word.to_string());
        end += 3;
    }
    match tokens.get(end) {
        Some(TokenTree::Ident(name)) if ITEMS.contains(&path[0].as_str()) => {
            module.defined.insert(name.to_string());
        }
        Some(bang) if path[0] == "macro_rules" && is(bang, '!') => {
            module.defined.extend(tokens.get(end + 1).map(ToString::to_string));
        }
        _ => {}
    }
    module.words.insert(path[0].clone());
    if path.len() > 1 {
        module.paths.push((path, tokens[at].span().start().line));
    }
    end
}

/// Reads past an attribute; past what it stands on too, where that is for tests or loom alone.
fn attribute(tokens: &[TokenTree], at: usize) -> usize {
    let Some(TokenTree::Group(group)) = tokens.get(at + 1) else { return at + 1 };
    let said: String = group.stream().to_string().split_whitespace().collect();
    let alone = ["cfg(test", "cfg(loom", "cfg(all(test", "cfg(all(loom"];
    if !alone.iter().any(|cfg| said.starts_with(cfg)) {
        return at + 2;
    }
    let (mut end, mut item) = (at + 2, false);
    while let Some(token) = tokens.get(end) {
        end += 1;
        item |= matches!(token, TokenTree::Ident(word) if ITEMS.contains(&word.to_string().as_str()));
        let body = matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
        // A brace may be a part of a `use`, a comma a part of an item; else it ends a field.
        if is(token, ';')
            || is(token, ',') && !item
            || body && !tokens.get(end).is_some_and(|next| is(next, ';'))
        {
            break;
        }
    }
    end
}

/// Every path of a `use`, with what it is called.
fn tree(tokens: &[TokenTree], before: &[String], each: &mut impl FnMut(Vec<String>, String)) {
    for part in tokens.split(|token| is(token, ',')) {
        let mut path = before.to_vec();
        let mut called = None;
        for (at, token) in part.iter().enumerate() {
            match token {
                TokenTree::Ident(word) if word == "as" => called = part.get(at + 1).map(ToString::to_string),
                TokenTree::Ident(_) if called.is_some() => {}
                TokenTree::Ident(word) if word == "self" && !path.is_empty() => {}
                TokenTree::Ident(word) => path.push(word.to_string()),
                TokenTree::Punct(star) if star.as_char() == '*' => path.push("*".into()),
                TokenTree::Group(group) => {
                    let inner: Vec<_> = group.stream().into_iter().collect();
                    tree(&inner, &path, each);
                    path.clear();
                }
                _ => {}
            }
        }
        if let Some(last) = path.last().filter(|_| path.len() > before.len() || !part.is_empty()) {
            let called = called.unwrap_or_else(|| last.clone());
            each(path, called);
        }
    }
}

fn is(token: &TokenTree, what: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == what)
}
