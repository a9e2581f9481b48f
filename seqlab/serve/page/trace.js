// A trace from the server: a safetensors file with weights as bytes (255 is 1) and other numbers as 16-bit floats.

/** Parse the bytes of a file into {tokens, names, get(name) -> {shape, data}}. */
export function parse(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true))
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)))
  const tokens = JSON.parse(header.__metadata__?.tokens ?? "{}")
  const get = name => {
    if (!header[name]) return null
    const {dtype, shape, data_offsets: [from, to]} = header[name]
    return {shape: shape.slice(1), data: DECODE[dtype](buffer.slice(8 + length + from, 8 + length + to))}
  }
  return {tokens, names: Object.keys(header).filter(name => name !== "__metadata__"), get}
}

const DECODE = {
  U8: bytes => Float32Array.from(new Uint8Array(bytes), level => level / 255),
  F16: bytes => Float32Array.from(new Uint16Array(bytes), half),
  F32: bytes => new Float32Array(bytes),
  I64: bytes => Float64Array.from(new BigInt64Array(bytes), Number),
}

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff
  if (exponent === 31) return fraction ? NaN : sign * Infinity
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * fraction / 1024)
}
