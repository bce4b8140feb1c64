import Foundation
import SecureFiles
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// The keys of other apps that a container keeps, one small file for each app.
struct PeerPins: Sendable {
  struct Pin: Sendable, Equatable {
    /// Nil when the file cannot be read: then every key is another one.
    var key: Data?
    /// A key that was named for the app and is not trusted, until the trusted one is proved again.
    var newKey: Data?
    /// This app has called the other one, which it has chosen itself.
    var wasCalled: Bool
    var date: Date
  }

  /// What a key is that the broker names for an app.
  enum Standing: Sendable, Equatable {
    case trusted, unknown, changed
    /// Unknown, and there is no room for another app.
    case noRoom
  }

  private var pins: [ApplicationID: Pin] = [:]
  /// Apps that this one never called.
  private var strangerCount = 0

  static let countMax = 10_000
  static let strangerCountMax = 1_000

  init() {}

  subscript(application: ApplicationID) -> Pin? { pins[application] }

  var keys: [PeerKey] {
    pins.sorted { $0.key.text < $1.key.text }.map { PeerKey($0.key, $0.value) }
  }

  /// Whether another key was named last for the app with this id than the one that is trusted.
  func isChanged(_ applicationID: String) -> Bool {
    guard let application = try? ApplicationID(applicationID), let pin = pins[application] else {
      return false
    }
    return pin.key == nil || pin.newKey != nil
  }

  func key(of application: ApplicationID) -> PeerKey? {
    pins[application].map { PeerKey(application, $0) }
  }

  // MARK: Deciding

  func standing(of key: Data, for application: ApplicationID, isCalled: Bool) -> Standing {
    if let pin = pins[application] { return pin.key == key ? .trusted : .changed }
    let hasRoom = pins.count < Self.countMax && (isCalled || strangerCount < Self.strangerCountMax)
    return hasRoom ? .unknown : .noRoom
  }

  /// Takes the key of an app that has proved it. Returns whether anything changed. Only for a key
  /// whose standing is `unknown` or `trusted`.
  mutating func take(_ key: Data, of application: ApplicationID, isCalled: Bool, _ date: Date) -> Bool {
    guard var pin = pins[application] else {
      set(Pin(key: key, wasCalled: isCalled, date: date), of: application)
      return true
    }
    guard pin.newKey != nil || isCalled && !pin.wasCalled else { return false }
    pin.newKey = nil
    pin.wasCalled = pin.wasCalled || isCalled
    set(pin, of: application)
    return true
  }

  /// Keeps a key that is not trusted, for the user to decide. Returns whether it is news.
  mutating func note(newKey: Data, of application: ApplicationID) -> Bool {
    guard var pin = pins[application], pin.newKey != newKey else { return false }
    pin.newKey = newKey
    set(pin, of: application)
    return true
  }

  /// Throws `applicationNotFound`, and `peerKeyChanged` for a fingerprint of neither key.
  mutating func trust(
    _ application: ApplicationID, _ fingerprint: String, _ date: Date
  ) throws(ServicesError) {
    guard var pin = pins[application] else {
      throw ServicesError(
        .applicationNotFound, detail: "no key of \(application) is known here: the next one is taken")
    }
    let bytes = KeyFingerprint.bytes(fingerprint)
    let meant = [pin.newKey, pin.key].compactMap(\.self).first { KeyFingerprint.of($0) == bytes }
    guard let meant else { throw PeerKey(application, pin).error }
    if meant != pin.key { (pin.key, pin.date) = (meant, date) }
    pin.newKey = nil
    set(pin, of: application)
  }

  /// Returns whether a key was known.
  mutating func remove(_ application: ApplicationID) -> Bool {
    let wasKnown = pins[application] != nil
    set(nil, of: application)
    return wasKnown
  }

  /// Takes over what others know of one app.
  mutating func copy(_ application: ApplicationID, from others: PeerPins) {
    set(others.pins[application], of: application)
  }

  private mutating func set(_ pin: Pin?, of application: ApplicationID) {
    if pins[application]?.wasCalled == false { strangerCount -= 1 }
    pins[application] = pin
    if pin?.wasCalled == false { strangerCount += 1 }
  }

  // MARK: In the container

  static let directory = Identity.directory + "/peers"

  private static func path(_ application: ApplicationID) -> String { directory + "/" + application.text }

  /// Reads all of them. A file that is damaged is a pin without a key. Throws the container's errors
  /// for anything else.
  init(in container: SecureContainer) throws {
    let files = container.files
    guard files.fileExists(atPath: Self.directory) else { return }
    for name in try files.contentsOfDirectory(atPath: Self.directory) {
      guard let application = try? ApplicationID(name) else { continue }
      let bytes = try? files.data(atPath: Self.path(application))
      let pin = bytes.flatMap { Pin($0) } ?? Pin(key: nil, wasCalled: true, date: .distantPast)
      set(pin, of: application)
    }
  }

  /// Writes what is known of an app, or removes its file. Throws the container's errors.
  func write(_ application: ApplicationID, in container: SecureContainer) throws {
    let files = container.files
    let path = Self.path(application)
    guard let pin = pins[application] else {
      return files.fileExists(atPath: path) ? try files.removeItem(atPath: path) : ()
    }
    try files.createDirectory(atPath: Self.directory, withIntermediateDirectories: true)
    try files.write(pin.encoded, toPath: path)
  }
}

extension PeerPins.Pin {
  /// A byte that is 1 when this app has called the other one, else 0; when the key was taken,
  /// milliseconds since 1970 (u64, little-endian); the trusted key, zeros when there is none; the new
  /// key, when there is one.
  var encoded: Data {
    let time = UInt64(max(0, date.timeIntervalSince1970 * 1000))
    return Data([wasCalled ? 1 : 0]) + withUnsafeBytes(of: time.littleEndian) { Data($0) }
      + (key ?? Data(count: KeyPair.byteCount)) + (newKey ?? Data())
  }

  private static let timeByteCount = MemoryLayout<UInt64>.size

  /// Nil for bytes of another form.
  init?(_ bytes: Data) {
    let bytes = Array(bytes)
    let keys = bytes.dropFirst(1 + Self.timeByteCount)
    guard keys.count == KeyPair.byteCount || keys.count == 2 * KeyPair.byteCount, bytes[0] <= 1 else {
      return nil
    }
    let time = bytes[1...Self.timeByteCount].reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    let key = Data(keys.prefix(KeyPair.byteCount))
    self.key = key == Data(count: KeyPair.byteCount) ? nil : key
    newKey = keys.count > KeyPair.byteCount ? Data(keys.suffix(KeyPair.byteCount)) : nil
    wasCalled = bytes[0] == 1
    date = Date(timeIntervalSince1970: Double(time) / 1000)
  }
}

extension PeerKey {
  init(_ application: ApplicationID, _ pin: PeerPins.Pin) {
    self.application = application
    fingerprint = pin.key.map(KeyFingerprint.text(of:))
    newFingerprint = pin.newKey.map(KeyFingerprint.text(of:))
    date = pin.date
  }

  /// Why nothing is exchanged with the app.
  var error: ServicesError {
    let trusted =
      fingerprint.map { "the key with the fingerprint \($0) is trusted" } ?? "the record is damaged"
    let new = newFingerprint.map { ", the new one has \($0)" } ?? ""
    return ServicesError(.peerKeyChanged, detail: "\(application): \(trusted)\(new)")
  }
}
