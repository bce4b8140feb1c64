/// The request by which an app asks another one to bring it to front: a method of
/// ``WellKnownService/frontRequest``, without params, attachments and reply.
public enum FrontRequest {
  /// `com.good.gd.icc`
  public static let serviceID = WellKnownService.frontRequest.serviceID
  /// 1.0.0.0
  public static let version = WellKnownService.frontRequest.version
  /// The service's only method.
  public static let method = "FRONT_REQ"
}
