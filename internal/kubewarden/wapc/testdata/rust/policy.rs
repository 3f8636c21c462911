// A policy that makes privileged containers unprivileged, in the shape that the crate
// wapc-guest gives to policies: handlers behind a lock, which wapc_init fills,
// buffers of a given capacity that the host writes to, empty vectors whose pointer is 1.
use std::sync::RwLock;

type Handler = fn(&[u8]) -> Result<Vec<u8>, String>;

static HANDLERS: RwLock<Vec<(Vec<u8>, Handler)>> = RwLock::new(Vec::new());

#[link(wasm_import_module = "wapc")]
extern "C" {
    fn __console_log(at: *const u8, n: usize);
    #[rustfmt::skip]
    fn __host_call(binding: *const u8, bn: usize, namespace: *const u8, nn: usize, operation: *const u8, on: usize, at: *const u8, n: usize) -> usize;
    fn __host_response(at: *mut u8);
    fn __host_response_len() -> usize;
    fn __host_error_len() -> usize;
    fn __host_error(at: *mut u8);
    fn __guest_response(at: *const u8, n: usize);
    fn __guest_error(at: *const u8, n: usize);
    fn __guest_request(operation: *mut u8, at: *mut u8);
}

#[no_mangle]
pub extern "C" fn wapc_init() {
    let mut handlers = HANDLERS.write().unwrap();
    handlers.push((b"validate".to_vec(), validate));
    handlers.push((b"validate_settings".to_vec(), |_| Ok(br#"{"valid":true,"message":null}"#.to_vec())));
    handlers.push((b"protocol_version".to_vec(), |_| Ok(br#""v1""#.to_vec())));
}

#[no_mangle]
pub extern "C" fn __guest_call(on: i32, n: i32) -> i32 {
    let mut operation: Vec<u8> = Vec::with_capacity(on as usize);
    let mut payload: Vec<u8> = Vec::with_capacity(n as usize);
    unsafe {
        __guest_request(operation.as_mut_ptr(), payload.as_mut_ptr());
        operation.set_len(on as usize);
        payload.set_len(n as usize);
    }
    let handlers = HANDLERS.read().unwrap();
    let result = match handlers.iter().find(|h| h.0 == operation) {
        Some((_, handler)) => handler(&payload),
        None => Err("No handler registered for function ".to_string() + &String::from_utf8_lossy(&operation)),
    };
    match result {
        Ok(b) => unsafe { __guest_response(b.as_ptr(), b.len()); 1 },
        Err(e) => unsafe { __guest_error(e.as_ptr(), e.len()); 0 },
    }
}

fn host_call(namespace: &str, operation: &str, payload: &[u8]) -> Result<Vec<u8>, String> {
    let binding = "kubewarden";
    unsafe {
        let ok = __host_call(binding.as_ptr(), binding.len(), namespace.as_ptr(), namespace.len(),
            operation.as_ptr(), operation.len(), payload.as_ptr(), payload.len());
        let n = if ok == 1 { __host_response_len() } else { __host_error_len() };
        let mut b: Vec<u8> = Vec::with_capacity(n);
        if ok == 1 { __host_response(b.as_mut_ptr()) } else { __host_error(b.as_mut_ptr()) }
        b.set_len(n);
        if ok == 1 { Ok(b) } else { Err("Host error: ".to_string() + &String::from_utf8_lossy(&b)) }
    }
}

fn validate(payload: &[u8]) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(payload).map_err(|_| "not UTF-8")?;
    let object = object_of(text);
    if object.contains(r#""abort":true"#) {
        panic!("asked for");
    }
    host_call("tracing", "log", br#"{"level":"info","message":"looks at an object"}"#)?;
    if object.contains(r#""owner":"#) {
        host_call("kubernetes", "get_resource", br#"{"api_version":"v1","kind":"Namespace","name":"shop","disable_cache":false}"#)?;
    }
    if !object.contains(r#""privileged":true"#) {
        return Ok(br#"{"accepted":true,"message":null,"code":null,"mutated_object":null,"audit_annotations":null,"warnings":null}"#.to_vec());
    }
    let log = "makes it unprivileged";
    unsafe { __console_log(log.as_ptr(), log.len()) };
    let object = object.replace(r#""privileged":true"#, r#""privileged":false"#);
    Ok((r#"{"accepted":true,"mutated_object":"#.to_string() + &object + "}").into_bytes())
}

// object_of returns the JSON text of request.object, or an empty one.
fn object_of(text: &str) -> &str {
    let key = "\"object\":";
    let from = match text.find(&(key.to_string() + "{")) {
        Some(at) => at + key.len(),
        None => return "",
    };
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    for (i, c) in text[from..].bytes().enumerate() {
        match c {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' if !quoted => depth += 1,
            b'}' if !quoted => {
                depth -= 1;
                if depth == 0 { return &text[from..from + i + 1] }
            }
            _ => {}
        }
    }
    ""
}
