import ContainerStore
import SodiumPrimitives
import Testing

#if canImport(Glibc)
  import Glibc
#endif

@Test func smoke() throws {
  let dir = "/tmp/od-smoke-\(getpid())"
  defer { system("rm -rf \(dir)") }
  mkdir(dir, 0o700)
  var o = Container.Options()
  o.passwordHash = .init(passes: 1, memoryKiB: 64)
  func cred() throws -> Credential { .passphrase(try SecretBytes(utf8: "hello")) }
  let a = try Container.create(at: dir + "/a", credential: cred(), options: o)
  try a.createDirectory("/x/y", withIntermediateDirectories: true)
  for n in [0, 1, 16383, 16384, 16385, 1 << 20, 1 << 20 + 1, 5_000_001] {
    let bytes = Random.bytes(n)
    try bytes.withUnsafeBytes { try a.write($0, to: "/x/y/f\(n)") }
    #expect(try a.contents(at: "/x/y/f\(n)") == bytes)
  }
  #expect(try a.list("/", recursively: true).count == 10)
  let b = try Container.create(at: dir + "/b", credential: cred(), options: o)
  let r = try a.send(["/x"], to: b, sender: "com.example.a")
  for f in r.files { #expect(try a.contents(at: f.originalPath) == b.contents(at: f.path)) }
  try a.close()
  try b.close()
  let c = try Container.open(at: dir + "/b", credential: cred(), mode: .readOnly)
  #expect(c.findings == [])
  #expect(try c.list("/", recursively: true).count == 13)
  for i in 0..<20 {
    let d = try Container.open(at: dir + "/a", credential: cred(), options: o)
    try d.move("/x/y/f1", to: "/g")
    try d.move("/g", to: "/x/y/f1")
    if i % 3 == 0 { try d.copy("/x", to: "/c\(i)") }
    if i % 5 == 4 { try d.remove("/c\(i / 3 * 3)") }
    try d.close()
  }
  let e = try Container.open(at: dir + "/a", credential: cred(), mode: .readOnly)
  print(try e.info(), e.findings)
  #expect(try e.verify().findings == [])
  #expect(try Container.verify(at: dir + "/b", credential: cred()).findings == [])
  #expect(throws: ContainerError.self) {
    try Container.open(at: dir + "/a", credential: .passphrase(SecretBytes(utf8: "nope")))
  }
}
