declare module "wasm-exec"
