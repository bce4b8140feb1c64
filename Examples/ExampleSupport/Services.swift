// The services that the programs have among themselves. Both sides of a service have its definition.
public import AppKinetics

/// Lets the user choose a photo: `PhotoPicker` offers it, and `PhotoClient` asks for it.
public enum Photos {
  /// The service's definition: it says what the service takes and answers.
  public static let definition = read(
    """
    {"service-id": "com.example.photos", "version": "1.0.0.0", "methods": {
      "pick": {
        "description": "Comes to the front, and lets the user choose a photo.",
        "result-value": {"type": "null"},
        "result-attachments": {"items": [{"title": "the photo", "format": "image/jpeg"}]},
        "errors": [{"code": 1, "title": "the user has cancelled"}]}}}
    """)

  /// The code of the error when the user has cancelled.
  public static let cancelled: Int64 = 1
}

/// Has somebody approve a document: `ApprovalService` offers it, and `ApprovalClient` asks for it.
public enum Approvals {
  /// The service's definition: it says what the service takes and answers.
  public static let definition = read(
    """
    {"service-id": "com.example.approvals", "version": "1.0.0.0", "methods": {
      "approve": {
        "description": "Answers when somebody has decided, which may take days.",
        "attachments": {"items": [{"title": "the document"}]},
        "result-value": {"type": "null"},
        "result-attachments": {"items": [{"title": "the approval", "format": "text/plain"}]},
        "errors": [{"code": 1, "title": "the document is rejected"}]}}}
    """)

  /// The code of the error when the document is rejected.
  public static let rejected: Int64 = 1
}

private func read(_ json: String) -> ServiceDefinition {
  do {
    return try ServiceDefinition(jsonText: json)
  } catch {
    preconditionFailure("\(error)")
  }
}
