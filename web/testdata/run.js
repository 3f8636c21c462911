// node run.js DIR <question: loads DIR/mapd.wasm as a page would, and prints the
// answer.
const fs = require("fs");
const path = require("path");

const dir = path.resolve(process.argv[2]);
require(path.join(dir, "wasm_exec.js"));
const go = new Go();
WebAssembly.instantiate(fs.readFileSync(path.join(dir, "mapd.wasm")), go.importObject)
	.then(({ instance }) => {
		go.run(instance);
		console.log(mapd.evaluate(fs.readFileSync(0, "utf8")));
		process.exit(0);
	})
	.catch((err) => {
		console.error(err);
		process.exit(1);
	});
