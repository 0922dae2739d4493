import assert from "node:assert/strict";
import { test } from "node:test";

import { linkTo, placeOf } from "../../src/model/place";
import { servicePath } from "../../src/service/service_path";

test("the address of a place leads back to it, whatever names are made of", () => {
  for (const place of [
    { resource: "array", consumer: null },
    { resource: "array", consumer: "iqn.2026-01.example:a/b#c %" },
    { resource: "vg/ä", consumer: "system.slice/db.service" },
  ]) {
    assert.deepEqual(placeOf(linkTo(place.resource, place.consumer)), place);
  }
});

test("an address that is none leads to the list", () => {
  for (const hash of ["", "#", "#/", "#resource", "#/%zz"]) {
    assert.deepEqual(placeOf(hash), { resource: null, consumer: null }, hash);
  }
});

test("the service is where its page is, at a proxy, too", () => {
  assert.deepEqual(
    ["/", "/tidegate/", "/tidegate", "/api/v1/namespaces/x/services/y:z/proxy/"].map(servicePath),
    ["/", "/tidegate/", "/tidegate/", "/api/v1/namespaces/x/services/y:z/proxy/"],
  );
});
