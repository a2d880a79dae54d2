"""The description of the server's interface (OpenAPI): what `/docs` shows and clients can be generated from."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

_TEXT = {"type": ["string", "null"]}
_NUMBERS = {"type": "array", "items": {"type": "number"}}
_MATRIX = {"type": "array", "items": _NUMBERS}
_INTEGERS = {"type": "array", "items": {"type": "integer"}}
_FRAMES = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["frame"],
        "properties": {"frame": {"type": "string"}, "probability": {"type": "number"}, "change": {"type": "number"}},
    },
}

_EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["pred"],
    "description": "Who did what to whom. Further keys are kept.",
    "properties": {
        "pred": {"type": "string", "description": "the predicate, inflected or not"},
        "subj": {**_TEXT, "description": "the subject"},
        "obj": {**_TEXT, "description": "the object"},
        "mod": {**_TEXT, "description": "the modifier, a preposition"},
        "frame": {**_TEXT, "description": "a label; used only with revise"},
        "frames": {
            "type": ["object", "null"],
            "additionalProperties": {"type": "number", "minimum": 0},
            "description": "a distribution over the true frame; used only with revise",
        },
        "confidence": {"type": ["number", "null"], "minimum": 0, "description": "scales the weight of the label"},
        "lemma": {**_TEXT, "description": "the predicate's lemma"},
        "text": {**_TEXT, "description": "the clause or sentence"},
    },
}
_LABELLED: dict[str, Any] = {
    "allOf": [{"$ref": "#/components/schemas/Event"}],
    "type": "object",
    "required": ["predicted"],
    "properties": {
        "predicted": {
            **_FRAMES,
            "description": "the most probable frames with their `probability`, the best first; empty below at_least",
        },
        "explain": {
            "type": "object",
            "description": "what the parts of the model contributed, where it was asked for and the model can tell",
            "properties": {
                "lexicon": {**_FRAMES, "description": "what the dictionary says"},
                "counts": {**_FRAMES, "description": "what the pooled counts say, before the context"},
                "context": {**_FRAMES, "description": "by how much the context changes the probability: `change`"},
                "labels": {"type": "number", "description": "how many labels of the predicate were counted"},
            },
        },
    },
}


def _document(event: str) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["events"],
        "properties": {
            "id": {"type": "string"},
            "events": {"type": "array", "minItems": 1, "items": {"$ref": f"#/components/schemas/{event}"}},
        },
    }


def _asked(*options: str) -> dict[str, Any]:
    every: dict[str, Any] = {
        "documents": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Document"}},
        "text": {"type": "string", "description": "instead of documents, if the server has a spaCy model"},
        "model": {"type": "string", "description": "the model's name; the first one by default"},
        "top": {"type": "integer", "minimum": 1, "default": 5, "description": "frames for each event"},
        "revise": {"type": "boolean", "default": False, "description": "use the labels in the documents"},
        "at_least": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "default": 0,
            "description": "leave out predictions below this probability",
        },
        "explain": {"type": "boolean", "default": False, "description": "say what the parts contributed"},
    }
    return {"type": "object", "properties": {name: every[name] for name in ("documents", "text", "model", *options)}}


_SCHEMAS: dict[str, Any] = {
    "Event": _EVENT,
    "Document": _document("Event"),
    "LabelledEvent": _LABELLED,
    "LabelledDocument": _document("LabelledEvent"),
    "PredictRequest": _asked("top", "revise", "at_least", "explain"),
    "EmbedRequest": _asked(),
    "Predictions": {
        "type": "object",
        "properties": {"documents": {"type": "array", "items": {"$ref": "#/components/schemas/LabelledDocument"}}},
    },
    "Vectors": {
        "type": "object",
        "properties": {
            "vectors": {
                "type": "object",
                "properties": {
                    "documents": {**_MATRIX, "description": "a vector per document: the mean of its events'"},
                    "events": {**_MATRIX, "description": "a vector per event"},
                    "document_ids": {"type": "array", "items": {"type": "string"}},
                    "event_document": {**_INTEGERS, "description": "the row of each event's document"},
                    "event_index": {**_INTEGERS, "description": "the index of each event in its document"},
                },
            }
        },
    },
    "Refusal": {
        "type": "object",
        "required": ["detail"],
        "properties": {
            "detail": {"type": "string", "description": "one sentence"},
            "field": {"type": "string", "description": "the field that is wrong"},
        },
    },
}

_STATUSES = {
    "401": "the token is missing or wrong",
    "408": "the request did not arrive in time",
    "413": "too large: body, documents, events or text",
    "422": "invalid; the field is named",
    "429": "overloaded; try again after Retry-After seconds",
    "503": "starting, shutting down, or not answered in time",
}
_EXAMPLE = {
    "documents": [{"events": [{"pred": "arrested", "subj": "police", "obj": "suspect"}, {"pred": "confessed"}]}],
    "top": 3,
}


def _operation(summary: str, description: str, asks: str, answers: str) -> dict[str, Any]:
    def content(schema: str, **more: Any) -> dict[str, Any]:
        return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}, **more}}

    refusals = {status: {"description": why, "content": content("Refusal")} for status, why in _STATUSES.items()}
    return {
        "summary": summary,
        "description": description,
        "operationId": asks.removesuffix("Request").lower(),
        "requestBody": {"required": True, "content": content(asks, example=_EXAMPLE)},
        "responses": {"200": {"description": "the answer", "content": content(answers)}, **refusals},
    }


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the description of all routes.

    Args:
        app: The routes that FastAPI answers; `/predict` and `/embed` are added.
    """
    from fastapi.openapi.utils import get_openapi

    whole: dict[str, Any] = get_openapi(
        title="revup",
        version=app.version,
        summary="Frames and vectors of events",
        description="Documents are sequences of events, as in the JSON Lines form of the command line.",
        routes=app.routes,
    )
    paths = {
        "/predict": {
            "post": _operation(
                "Label events with their most probable frames",
                "The same documents, with `predicted` on each event: equal to the output of `revup predict`.",
                "PredictRequest",
                "Predictions",
            )
        },
        "/embed": {
            "post": _operation(
                "Vectors of documents and events",
                "The arrays that `revup embed` writes, as lists.",
                "EmbedRequest",
                "Vectors",
            )
        },
    }
    whole["paths"] = {**paths, **whole.get("paths", {})}
    components = whole.setdefault("components", {})
    components["schemas"] = {**components.get("schemas", {}), **_SCHEMAS}
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return whole
