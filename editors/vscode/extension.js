// Starts "mapd lsp" and connects it to the editor. There is no build step: this file is what
// runs.
"use strict";

const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const vscode = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");

let client;

function start() {
  const settings = vscode.workspace.getConfiguration("mapd");
  const server = {
    command: settings.get("path"),
    args: ["lsp", ...settings.get("arguments")],
    transport: TransportKind.stdio,
  };
  client = new LanguageClient("mapd", "mapd", server, {
    documentSelector: [{ language: "yaml", scheme: "file" }, { language: "yaml", scheme: "untitled" }],
  });
  return client.start();
}

async function stop() {
  const old = client;
  client = undefined;
  if (old) {
    // A client that never started, such as with a wrong mapd.path, refuses to be stopped, and
    // must not keep the next one from being started.
    await old.stop().catch(() => {});
  }
}

async function restart() {
  await stop();
  await start();
}

// The YAML extension asks for the schema of each document: by what is in it, since files of
// policies have no name of their own.
const schemas = [
  ["mapd-test.schema.json", /^apiVersion: *["']?test\.mapd\.dev\//m],
  ["mapd-policy.schema.json", /^kind: *["']?MutatingAdmissionPolicy(Binding)?["']? *$/m],
];

function schemaOf(uri) {
  const text = vscode.workspace.textDocuments.find((d) => d.uri.toString() === uri)?.getText() ?? "";
  const found = schemas.find(([, pattern]) => pattern.test(text));
  return found && `mapd://schemas/${found[0]}`;
}

function schemaText(uri) {
  const found = schemas.find(([name]) => uri === `mapd://schemas/${name}`);
  return found && readFileSync(join(__dirname, found[0]), "utf8");
}

async function offerSchemas() {
  const yaml = vscode.extensions.getExtension("redhat.vscode-yaml");
  const api = yaml && await yaml.activate();
  api?.registerContributor?.("mapd", schemaOf, schemaText);
}

exports.activate = (context) => {
  offerSchemas().catch((err) => console.error(`mapd: the YAML extension takes no schemas: ${err}`));
  context.subscriptions.push(
    vscode.commands.registerCommand("mapd.restart", restart),
    vscode.workspace.onDidChangeConfiguration((event) => event.affectsConfiguration("mapd") && restart()),
  );
  return start();
};

exports.deactivate = stop;
