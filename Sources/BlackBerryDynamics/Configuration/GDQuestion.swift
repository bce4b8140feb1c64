public import SodiumPrimitives

/// What a person is asked for, in the place of a screen of the vendor's library.
///
/// This type is no part of the vendor's interface.
public struct GDQuestion: Sendable {
  /// What is wanted.
  public enum Kind: Sendable, Hashable, CaseIterable {
    /// The password of an app that is set up now.
    case firstPassword
    case password
    /// The owner's code, which ends a remote lock.
    case unlockCode
    /// The old password and a new one.
    case passwordChange
  }

  /// The reply of a person.
  public enum Answer: ~Copyable, Sendable {
    /// A password or a code.
    case secret(SecretBytes)
    /// The answer to `passwordChange`.
    case change(old: SecretBytes, new: SecretBytes)
    /// Nobody answers. No question follows until the app calls `authorize` again.
    case none
  }

  /// Asks a person. Called for one question at a time.
  public typealias Answering = @Sendable (GDQuestion) async -> Answer

  /// What is wanted.
  public let kind: Kind
  /// A sentence about the reason; empty without one.
  public let message: String
  /// A sentence about the reason why the last answer was refused; nil for a first question.
  public let failure: String?
}
