import {Engine} from "./engine"
import type {State} from "./state"
import {scriptURL} from "./trusted"

const engine = new Engine(scriptURL("worker.js"), 10_000)

const state: State = {documents: [], objects: []}
const answer = await engine.call<unknown>("evaluate", state)
document.getElementById("answer")!.textContent = JSON.stringify(answer)
