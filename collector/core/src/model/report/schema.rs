//! The JSON Schema of the types that write themselves. The others derive theirs.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::Limit;
use super::series::{GpuSeries, Track};
use crate::model::gpu::gpu_figure::GpuFigure;

impl JsonSchema for Limit {
    fn schema_name() -> Cow<'static, str> {
        "Limit".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "integer", "minimum": 0 }, { "const": "unlimited" }, { "type": "null" }] })
    }
}

/// Its figures are described where [`GpuFigure`] lists them. The first ones are always written, so they are
/// required. An earlier release may lack one.
impl JsonSchema for GpuSeries {
    fn schema_name() -> Cow<'static, str> {
        "GpuSeries".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut properties = serde_json::Map::new();
        properties.insert(
            "id".into(),
            json_schema!({ "type": "string", "description": "As in `gpus[].id`." }).into(),
        );
        // schemars lists the values of an enum under `oneOf`: the name of each as `const`, its doc comment as `description`.
        let figures = GpuFigure::json_schema(generator);
        let figures = figures.get("oneOf").and_then(Value::as_array).into_iter().flatten();
        for figure in figures.take(GpuFigure::OVER_TIME.len()) {
            let mut track = generator.subschema_for::<Track>();
            track.insert("description".into(), figure["description"].clone());
            properties.insert(figure["const"].as_str().unwrap_or_default().into(), track.into());
        }
        let required: Vec<&str> = ["id"]
            .into_iter()
            .chain(GpuFigure::OVER_TIME.map(GpuFigure::name))
            .take(1 + GpuFigure::USUAL)
            .collect();
        json_schema!({ "type": "object", "properties": properties, "required": required })
    }
}
