import AppKineticsTesting
import Foundation
import SodiumPrimitives
import TestSupport
import Testing

@testable import AppRuntime

/// The object against the value, which a table was tested for.
@Suite(.timeLimit(.minutes(120)))
struct WalkTests {
  /// What the object has to show after each step.
  private struct Model {
    var state = Authorization(activation: .activated)
    /// Whether a management file ordered the remote lock.
    var isLockOfManagement = false
    var isInForeground = true
    var block: Notice?
    var entitlement = Authorization.Entitlement.entitled

    mutating func apply(_ input: Authorization.Input) { _ = state.apply(input) }

    mutating func restart() {
      state = Authorization(
        activation: .activated, localBlocks: state.localBlocks, isRemotelyLocked: state.isRemotelyLocked,
        managementBlock: block, entitlement: entitlement)
      isInForeground = true
    }

    mutating func manage(_ block: Notice?, _ entitlement: Authorization.Entitlement, locks: Bool) {
      (self.block, self.entitlement) = (block, entitlement)
      apply(.managed(block: block, entitlement: entitlement))
      if locks {
        isLockOfManagement = true
        apply(.remotelyLocked)
      } else if isLockOfManagement {
        isLockOfManagement = false
        apply(.unlockCodeAccepted)
      }
    }
  }

  private static let key = String(repeating: "k", count: 32)

  private func restart(_ device: Device) async throws -> AppRuntime {
    await device.stop()
    return try await device.start(rawKey: { try SecretBytes(utf8: Self.key) })
  }

  @Test func everyStepOfTheObjectIsOneOfTheValue() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let rules = #""unlockCode": "CODE", "passwordRules": {"idleSeconds": 60}"#
      var serial = 1
      var runtime = try await device.activated(#""serial": 1, \#(rules)"#)
      try runtime.container.store.addKey(.rawKey(SecretBytes(utf8: Self.key)))
      var (model, random) = (Model(), SplitMix64(seed: .random(in: 0 ... .max)))
      model.restart()
      runtime = try await restart(device)
      var authorizedCount = 0
      for number in 0..<TestEffort.count(400, long: 10_000, all: 1_000_000) {
        let kind = random.below(24)
        switch kind {
        case 0...6:
          let isRight = !random.oneIn(4)
          try? await runtime.authorize(passphrase: password(isRight ? "correct horse" : "wrong"))
          if isRight, model.state.asks == .password {
            model.apply(
              model.state.isAuthorized
                ? .authenticated(requiresNewPassword: false)
                : .opened(byPerson: true, requiresNewPassword: false))
          }
        case 7...9:
          // After a few wrong ones a code has to wait.
          device.clock.advance(by: .seconds(301))
          model.apply(.idleTimePassed)
          let isRight = !random.oneIn(4)
          try? await runtime.unlock(code: password(isRight ? "4711" : "4712"))
          if isRight, model.state.asks == .unlockCode {
            model.apply(.unlockCodeAccepted)
            model.isLockOfManagement = false
          }
        case 10:
          let block = LocalBlock(id: "\(random.below(3))", notice: Notice(title: "", text: "\(number)"))
          runtime.block(block)
          model.apply(.blocked(block))
        case 11...13:
          let id = "\(random.below(3))"
          runtime.unblock(id: id)
          model.apply(.unblocked(id: id))
        case 14...17:
          serial += 1
          let (blocks, locks) = (random.oneIn(6), random.oneIn(6))
          let entitlement = random.oneIn(6) ? Authorization.Entitlement.allCases[random.below(3)] : .entitled
          var members = [#""serial": \#(serial)"#, rules]
          if blocks { members.append(#""blocked": {}"#) }
          if locks { members.append(#""locked": \#(serial)"#) }
          switch entitlement {
          case .entitled: break
          case .versionNotEntitled: members.append(#""entitlements": {"com.example.app": ["9"]}"#)
          case .notEntitled: members.append(#""entitlements": {}"#)
          }
          try await device.write(members.joined(separator: ", "))
          model.manage(blocks ? Notice(title: "", text: "") : nil, entitlement, locks: locks)
        case 18:
          #expect(await runtime.remoteLock())
          model.apply(.remotelyLocked)
        case 19:
          device.clock.advance(by: .seconds(61))
          model.apply(.idleTimePassed)
        case 20...21:
          model.isInForeground = kind == 20
          runtime.setForeground(model.isInForeground)
          if model.isInForeground { model.apply(.broughtToFront) }
        case 22:
          _ = await runtime.authorizeAutonomously()
          if !model.isInForeground { model.apply(.opened(byPerson: false, requiresNewPassword: false)) }
        default:
          runtime = try await restart(device)
          model.restart()
        }
        world.callbacks.take()
        let state = runtime.authorization
        guard state == model.state else {
          Issue.record("step \(number), kind \(kind): \(state), not \(model.state)")
          break
        }
        #expect(((try? runtime.container) != nil) == model.state.isAuthorized)
        #expect(
          ((try? runtime.container.files.contentsOfDirectory(atPath: "/")) != nil) == model.state.isAuthorized
        )
        if model.state.isAuthorized { authorizedCount += 1 }
      }
      #expect(authorizedCount > 20)
      await device.stop()
    }
  }
}
