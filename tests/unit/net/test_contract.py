"""Requests are checked against the document that describes them."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.net.contract import Contract, Unfit, shipped

DOCUMENT: dict[str, Any] = {
    "paths": {
        "/things/{name}": {
            "parameters": [{"name": "name", "in": "path", "schema": {"type": "string"}}],
            "get": {
                "parameters": [
                    {"$ref": "#/components/parameters/limit"},
                    {"name": "all", "in": "query", "schema": {"type": "boolean"}},
                    {"name": "confirm", "in": "query", "required": True, "schema": {"type": "string"}},
                ]
            },
            "put": {
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}},
                }
            },
        }
    },
    "components": {
        "parameters": {
            "limit": {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 500}}
        },
        "schemas": {
            "Thing": {
                "type": "object",
                "properties": {"size": {"type": "integer"}},
                "required": ["size"],
                "additionalProperties": False,
            }
        },
    },
}
PATH = "/things/{name}"


@pytest.fixture(scope="module")
def contract() -> Contract:
    return Contract(DOCUMENT)


def test_what_the_document_describes_passes(contract: Contract) -> None:
    contract.check_query("GET", PATH, {"confirm": ["x"], "limit": ["500"], "all": ["true"]})
    contract.check_body("PUT", PATH, {"size": 1})


@pytest.mark.parametrize(("query", "said"), [
    ({}, "confirm is needed"),
    ({"confirm": ["a"], "limt": ["1"]}, "there is no parameter 'limt'; there are: limit, all, confirm"),
    ({"confirm": ["a", "b"]}, "confirm is given 2 times"),
    ({"confirm": ["a"], "limit": ["0"]}, "limit: 0 is less than the minimum of 1"),
    ({"confirm": ["a"], "limit": ["ten"]}, "limit:"),
    ({"confirm": ["a"], "limit": ["²"]}, "limit:"),
    ({"confirm": ["a"], "limit": ["9" * 5000]}, "limit:"),
    ({"confirm": ["a"], "all": ["1"]}, "all:"),
])  # fmt: skip
def test_parameters_that_it_does_not_describe_are_named(
    contract: Contract, query: dict[str, list[str]], said: str
) -> None:
    with pytest.raises(Unfit) as refused:
        contract.check_query("GET", PATH, query)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(("body", "said"), [
    (None, "a body is needed"), ({}, '"size" is a required property'), ({"size": "1"}, "size: "),
    ({"size": 1, "colour": 2}, "colour"),
])  # fmt: skip
def test_bodies_that_it_does_not_describe_are_refused(contract: Contract, body: object, said: str) -> None:
    with pytest.raises(Unfit) as refused:
        contract.check_body("PUT", PATH, body)
    assert said in str(refused.value)


@pytest.mark.parametrize(("body", "said"), [
    ({"password": "planted"}, "password: is shorter than 10 characters"),
    ({"password": "planted is longer" * 60}, "password: is longer than 1000 characters"),
    ({"password": ["planted"]}, 'password: is not of type "string"'),
    ({"role": "planted does not match"}, "role: is not one of "), ("planted", 'is not of type "object"'),
])  # fmt: skip
def test_what_a_body_holds_is_not_said(body: object, said: str) -> None:
    if isinstance(body, dict):
        body = {"name": "x", "role": "viewer", **body}
    with pytest.raises(Unfit, match=said) as refused:
        shipped().check_body("POST", "/users", body)
    assert "planted" not in str(refused.value)


def test_as_many_users_as_documented_are_made_at_once() -> None:
    shipped().check_body("POST", "/device-users", {"users": [{"user": str(at)} for at in range(500)]})
    with pytest.raises(Unfit, match="users"):
        shipped().check_body("POST", "/device-users", {"users": [{"user": str(at)} for at in range(501)]})
