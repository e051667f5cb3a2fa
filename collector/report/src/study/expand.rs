//! The variants of a study: commands with placeholders, and the values that are put into them.

use super::plan::{Variant, file_stem};
use crate::quote;

/// Maximum number of variants of a study.
const MOST_VARIANTS: usize = 1_000;

/// A command as the user gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Its name; may have placeholders.
    pub name: String,
    /// Its command line; may have placeholders.
    pub command: String,
}

/// A placeholder, `{NAME}`, and what is put into its place in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its values.
    pub values: Vec<String>,
}

/// Names of placeholders, each with the value that is put into its place.
type Values<'a> = Vec<(&'a str, &'a str)>;

/// Makes the variants. Each template makes one for each combination of values of the parameters that it uses; the last
/// parameter changes first. All templates share `prepare`, a command before each run: each template uses its placeholders, too.
///
/// # Errors
/// If there are no variants, too many, or some of one name, or a parameter is given twice or not used. The text is for the user.
pub fn expand(
    templates: &[Template],
    prepare: Option<&str>,
    parameters: &[Parameter],
) -> Result<Vec<Variant>, String> {
    for (at, parameter) in parameters.iter().enumerate() {
        let name = &parameter.name;
        if parameters[..at].iter().any(|other| other.name == *name) {
            return Err(format!("the parameter {name} is given twice"));
        }
        if !templates.iter().any(|template| uses(template, prepare, parameter)) {
            return Err(format!("the parameter {name} has no place: no name or command has {{{name}}}"));
        }
    }
    let mut variants: Vec<Variant> = Vec::new();
    for template in templates {
        let used = parameters.iter().filter(|parameter| uses(template, prepare, parameter));
        for values in combinations(used)? {
            let variant = variant(template, prepare, &values, &variants);
            if variant.name.is_empty() {
                return Err(format!(
                    "a variant of the command {} has no name",
                    quote::word(&variant.command)
                ));
            }
            if variants.iter().any(|other| other.name == variant.name) {
                let name = quote::word(&variant.name);
                return Err(format!("two variants are called {name}: names tell them apart"));
            }
            variants.push(variant);
        }
        // `combinations` limits the variants of one template only.
        if variants.len() > MOST_VARIANTS {
            return Err(too_many());
        }
    }
    if variants.is_empty() {
        return Err("there is no variant: give --variant NAME='CMD', or a FILE.toml".to_owned());
    }
    Ok(variants)
}

fn too_many() -> String {
    format!("these are more than {MOST_VARIANTS} variants")
}

/// Whether a template's name or command, or `prepare`, has the placeholder of a parameter.
fn uses(template: &Template, prepare: Option<&str>, parameter: &Parameter) -> bool {
    let placeholder = format!("{{{}}}", parameter.name);
    let texts = [Some(template.name.as_str()), Some(&template.command), prepare];
    texts.into_iter().flatten().any(|text| text.contains(&placeholder))
}

/// All combinations of values, one of each parameter. Without parameters there is one combination, which is empty.
///
/// # Errors
/// If they are too many.
fn combinations<'a>(parameters: impl Iterator<Item = &'a Parameter>) -> Result<Vec<Values<'a>>, String> {
    let mut combinations: Vec<Values> = vec![Vec::new()];
    for parameter in parameters {
        if combinations.len().saturating_mul(parameter.values.len()) > MOST_VARIANTS {
            return Err(too_many());
        }
        // Each combination so far, with each value of this parameter.
        let with_each = |values: Values<'a>| {
            let entries = parameter.values.iter().map(|value| (parameter.name.as_str(), value.as_str()));
            entries.map(move |entry| values.iter().copied().chain([entry]).collect())
        };
        combinations = combinations.into_iter().flat_map(with_each).collect();
    }
    Ok(combinations)
}

/// Makes a variant: puts values into a template and into `prepare`. A value whose placeholder the template's name lacks is
/// appended to the name. The variant's files get other names than those of `others`.
fn variant(template: &Template, prepare: Option<&str>, values: &Values, others: &[Variant]) -> Variant {
    let appended = values.iter().filter(|(name, _)| !template.name.contains(&format!("{{{name}}}")));
    let parts =
        [fill(&template.name, values)].into_iter().chain(appended.map(|(_, value)| (*value).to_owned()));
    let name = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    let file = free_stem(&file_stem(&name), others);
    Variant {
        name,
        command: fill(&template.command, values),
        prepare: prepare.map(|line| fill(line, values)),
        file,
    }
}

/// A prefix of file names that none of `others` has: `stem`, or `stem` with `~2`, `~3` and so on after it.
fn free_stem(stem: &str, others: &[Variant]) -> String {
    let is_free = |stem: &str| others.iter().all(|other| other.file != stem);
    let mut free = stem.to_owned();
    let mut number = 1;
    while !is_free(&free) {
        number += 1;
        let suffix = format!("~{number}");
        let mut shortened = stem.to_owned();
        // `file_stem` cuts the end of a name that is too long, which would be the number.
        while file_stem(&format!("{shortened}{suffix}")).len() < shortened.len() + suffix.len() {
            shortened.pop();
        }
        free = shortened + &suffix;
    }
    free
}

/// Puts values into a text for their placeholders. A placeholder within a value stays, and so do braces around anything else:
/// they may be a shell's.
fn fill(text: &str, values: &Values) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after_brace)) = rest.split_once('{') {
        filled += before;
        let value = after_brace.split_once('}').and_then(|(name, after)| {
            values.iter().find(|(known, _)| *known == name).map(|(_, value)| (value, after))
        });
        match value {
            Some((value, after)) => {
                filled += value;
                rest = after;
            }
            // Only the brace is copied, because a placeholder can begin right after it.
            None => {
                filled.push('{');
                rest = after_brace;
            }
        }
    }
    filled + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(name: &str, command: &str) -> Template {
        Template { name: name.into(), command: command.into() }
    }

    fn parameter(name: &str, values: &[&str]) -> Parameter {
        Parameter { name: name.into(), values: values.iter().map(|value| (*value).to_owned()).collect() }
    }

    fn names(variants: &[Variant]) -> Vec<(&str, &str)> {
        variants.iter().map(|variant| (variant.name.as_str(), variant.command.as_str())).collect()
    }

    // Requirement: CMD-31
    #[test]
    fn each_combination_of_the_values_that_a_command_uses_is_a_variant() {
        let parameters = [parameter("model", &["mlp", "xgb"]), parameter("n", &["1", "2"])];
        let templates = [template("base", "./base"), template("{model}", "./train {model} -n {n} {other}")];
        let variants = expand(&templates, Some("./clean {model}"), &parameters[..]).unwrap();
        assert_eq!(
            names(&variants),
            [
                ("base-mlp", "./base"),
                ("base-xgb", "./base"),
                ("mlp-1", "./train mlp -n 1 {other}"),
                ("mlp-2", "./train mlp -n 2 {other}"),
                ("xgb-1", "./train xgb -n 1 {other}"),
                ("xgb-2", "./train xgb -n 2 {other}"),
            ]
        );
        assert_eq!(variants[5].prepare.as_deref(), Some("./clean xgb"));
        let variants = expand(&templates, None, &parameters[..]).unwrap();
        assert_eq!(names(&variants)[0], ("base", "./base"));
    }

    #[test]
    fn value_is_not_looked_into_again() {
        let parameters = [parameter("a", &["{b}"]), parameter("b", &["x"])];
        let variants = expand(&[template("n", "{a} {b} {{b} {")], None, &parameters).unwrap();
        assert_eq!(names(&variants), [("n-{b}-x", "{b} x {x {")]);
    }

    #[test]
    fn names_that_would_have_the_same_files_get_numbers() {
        let long = "x".repeat(200);
        let names = ["a/b", "a_b", "a b", &long, &format!("{long}y")];
        let variants = expand(&names.map(|name| template(name, "true")), None, &[]).unwrap();
        let files: Vec<_> = variants.iter().map(|variant| variant.file.as_str()).collect();
        assert_eq!(files[..3], ["a_b", "a_b~2", "a_b~3"]);
        assert_eq!([files[3].len(), files[4].len()], [100, 100]);
        assert!(files[4].ends_with("x~2"), "{files:?}");
        assert!(files.iter().all(|file| file_stem(file) == *file), "{files:?}");
    }

    #[test]
    fn what_cant_be_told_apart_or_has_no_use_is_refused() {
        let refused = |templates: &[Template], parameters: &[Parameter]| {
            expand(templates, None, parameters).unwrap_err()
        };
        let one = [template("a", "x {n}")];
        assert_eq!(refused(&[], &[]), "there is no variant: give --variant NAME='CMD', or a FILE.toml");
        assert_eq!(
            refused(&one, &[parameter("m", &["1"])]),
            "the parameter m has no place: no name or command has {m}"
        );
        assert_eq!(
            refused(&one, &[parameter("n", &["1"]), parameter("n", &["2"])]),
            "the parameter n is given twice"
        );
        assert_eq!(
            refused(&one, &[parameter("n", &["1", "1"])]),
            "two variants are called a-1: names tell them apart"
        );
        assert_eq!(refused(&[template("", "x")], &[]), "a variant of the command x has no name");
        let many: Vec<String> = (0..40).map(|n| n.to_string()).collect();
        let many = |name: &str| Parameter { name: name.into(), values: many.clone() };
        assert_eq!(
            refused(&[template("a", "{n}{m}")], &[many("n"), many("m")]),
            "these are more than 1000 variants"
        );
    }
}
