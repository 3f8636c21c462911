// Starts "mapd lsp" and connects it to the editor. There is no build step: this file is what
// runs.
"use strict";

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

exports.activate = (context) => {
  context.subscriptions.push(
    vscode.commands.registerCommand("mapd.restart", restart),
    vscode.workspace.onDidChangeConfiguration((event) => event.affectsConfiguration("mapd") && restart()),
  );
  return start();
};

exports.deactivate = stop;
