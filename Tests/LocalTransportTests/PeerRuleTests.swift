import Crypto
import Foundation
import ServiceWire
import SwiftASN1
import Testing
import X509

@testable import LocalTransport

/// A lane between an app and the broker, and what each takes of the other.
@Suite(.timeLimit(.minutes(10)))
struct PeerRuleTests {
  enum Event: Equatable, Sendable {
    case opened(peerCertificate: Data?, peerPublicKey: Data?)
    case received([WireBrokerMessage])
    case closed(LaneEnd)
  }

  let authority: CertificateAuthority
  let app = AppKey()
  let appCertificate: Data

  init() throws {
    authority = try CertificateAuthority()
    appCertificate = try app.selfSignedCertificate()
  }

  func lane(
    _ role: LaneRole, _ descriptor: Int32, _ key: AppKey, _ certificate: Data, _ rule: PeerRule
  ) throws -> (BrokerLane, AsyncStream<Event>.Iterator) {
    let (stream, continuation) = AsyncStream<Event>.makeStream()
    let lane = try BrokerLane.open(
      descriptor: descriptor, role: role, key: key, certificate: certificate, peer: rule, limits: .patient,
      events: LaneEvents(
        opened: {
          continuation.yield(.opened(peerCertificate: $0.peerCertificate, peerPublicKey: $0.peerPublicKey))
        }, received: { continuation.yield(.received($1)) }, closed: { continuation.yield(.closed($1)) }))
    return (lane, stream.makeAsyncIterator())
  }

  func broker(
    _ descriptor: Int32, _ rule: PeerRule = .anyKey
  ) throws -> (BrokerLane, AsyncStream<Event>.Iterator) {
    try lane(.acceptor, descriptor, AppKey(rawBytes: authority.rawKey), authority.certificate, rule)
  }

  @Test(arguments: [false, true])
  func opensBetweenAnAppAndTheBroker(isPinned: Bool) async throws {
    let sockets = try SocketPair()
    let rule: PeerRule = isPinned ? .certificate(authority.certificate) : .firstUse
    var (appLane, near) = try lane(.dialler, sockets.near, app, appCertificate, rule)
    var (brokerLane, far) = try broker(sockets.far)
    #expect(
      await far.next() == .opened(peerCertificate: appCertificate, peerPublicKey: app.publicKey))
    #expect(
      await near.next()
        == .opened(
          peerCertificate: authority.certificate,
          peerPublicKey: try AppKey(rawBytes: authority.rawKey).publicKey))
    let question = WireBrokerMessage.with { $0.attend.name = "tool" }
    try appLane.send([question])
    #expect(await far.next() == .received([question]))
    brokerLane.close(.forgotten)
    #expect(await near.next() == .closed(LaneEnd(.peer, .forgotten)))
    #expect(await far.next() == .closed(LaneEnd(.here, .forgotten)))
  }

  /// Another broker, and the pinned one's key with another certificate.
  @Test(arguments: [false, true])
  func refusesABrokerThatIsNotThePinnedOne(hasThePinnedKey: Bool) async throws {
    let sockets = try SocketPair()
    let key = try AppKey(rawBytes: authority.rawKey)
    let pinned = hasThePinnedKey ? try key.selfSignedCertificate() : try CertificateAuthority().certificate
    var (_, near) = try lane(.dialler, sockets.near, app, appCertificate, .certificate(pinned))
    var (_, far) = try broker(sockets.far)
    guard case .closed(let end)? = await near.next() else {
      Issue.record("opened")
      return
    }
    #expect(end.fault == .brokerNotTrusted && end.side == .here)
    guard case .closed(let farEnd)? = await far.next() else {
      Issue.record("opened")
      return
    }
    #expect(farEnd.fault == .certificateNotFound && farEnd.side == .peer)
  }

  @Test func takesNoAppWhoseKeyIsNotOnP256() async throws {
    let check = try PeerRule.anyKey.check()
    #expect(check(PeerIdentity(certificate: appCertificate)) == nil)
    #expect(check(PeerIdentity(certificate: Data([0x30, 0]))) == .certificateNotFound)
    let other = P384.Signing.PrivateKey()
    let name = DistinguishedName()
    let certificate = try Certificate(
      version: .v3, serialNumber: Certificate.SerialNumber(), publicKey: .init(other.publicKey),
      notValidBefore: .now - 60, notValidAfter: .now + 60, issuer: name, subject: name,
      signatureAlgorithm: .ecdsaWithSHA384, extensions: Certificate.Extensions(),
      issuerPrivateKey: .init(other)
    ).derBytes()
    #expect(check(PeerIdentity(certificate: certificate)) == .certificateNotFound)
  }

  /// The end of the other app's leaf; a lane tells the same of each rule.
  @Test func takesALeafForItsAppAlone() throws {
    let leaf = try authority.issue(
      appID: "far", activationUser: "user", publicKey: app.publicKey, notAfter: .max)
    for (appID, fault) in [("far", nil), ("other", .certificateNotFound)] as [(String, ProtocolFault?)] {
      let check = try PeerRule.leaf(
        authority: authority.certificate, appID: appID, activationUser: "user"
      ).check()
      #expect(check(PeerIdentity(certificate: leaf)) == fault)
    }
    #expect(throws: IdentityError.certificateUnreadable) {
      try PeerRule.leaf(authority: Data([1]), appID: "far", activationUser: "user").check()
    }
  }

  @Test func certifiesItselfForBothSidesOfTLS() throws {
    let certificate = try Certificate.read(appCertificate)
    #expect(certificate.publicKey.isValidSignature(certificate.signature, for: certificate))
    #expect(try certificate.extensions.keyUsage == KeyUsage(digitalSignature: true))
    #expect(certificate.notValidBefore < .now && certificate.notValidAfter > .now + 86_400 * 365)
    #expect(PeerIdentity(certificate: appCertificate).publicKey == app.publicKey)
    #expect(try app.selfSignedCertificate() != appCertificate)
  }
}
